"""The formats, tables and details that commands print."""
