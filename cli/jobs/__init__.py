"""Selecting jobs, waiting for them, logs and terminals; shared by several commands."""
