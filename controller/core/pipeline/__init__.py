"""The settings of all parts of the engine from scheduler.toml, and the interfaces of metrics and hook
plugins.
"""
