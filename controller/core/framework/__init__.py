"""Plugin interfaces, scheduler profiles, and the isolation of plugins that fail."""
