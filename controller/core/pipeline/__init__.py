"""The settings of all subsystems from scheduler.toml, and the interfaces of metrics and hook plugins."""
