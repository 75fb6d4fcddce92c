"""The built-in plugins. They are loaded through Python entry points, like the plugins that a site
installs.
"""
