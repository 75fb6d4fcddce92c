"""Pickers: which GPU of a node gives a share of a GPU."""
