"""The built-in plugins. They are loaded through entry points, like the plugins of a site."""
