"""The journal and the rows."""
