"""The settings of all parts of the engine, from scheduler.toml. Also the interfaces of metrics plugins and
hook plugins.
"""
