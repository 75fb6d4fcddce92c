"""Commands for the controller, its configuration and the terminal UI."""
