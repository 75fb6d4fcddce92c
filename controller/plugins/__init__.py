"""The built-in plugins, loaded through entry points like the plugins of a site."""
