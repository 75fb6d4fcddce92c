"""Prints what commands show: tables, details of one object, JSON, YAML and CSV."""
