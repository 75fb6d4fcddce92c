"""Pickers: each chooses the GPU of a node from which a job gets a part of a GPU."""
