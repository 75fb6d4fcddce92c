"""Formats, tables and details that commands print."""
