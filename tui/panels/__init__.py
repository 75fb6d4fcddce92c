"""Panels that fill the free space below short lists: figures and rows that belong to the list."""
