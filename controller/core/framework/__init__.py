"""Plugin interfaces, profiles, and the isolation of plugins that fail."""
