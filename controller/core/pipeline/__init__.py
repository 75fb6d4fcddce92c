"""The settings of all subsystems that scheduler.toml describes, and the hooks of plugins."""
