"""Runs the cycles of all scheduler profiles, and reserves nodes that several profiles share."""
