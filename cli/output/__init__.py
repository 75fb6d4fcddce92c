"""Prints the output of commands: tables, details of one object, JSON, YAML and CSV."""
