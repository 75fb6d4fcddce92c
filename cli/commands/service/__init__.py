"""Commands for the controller, its store and configuration, notifications, the terminal UI and MCP."""
