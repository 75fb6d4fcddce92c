"""Serves the terminal UI to browsers on this machine (`corral web`)."""
