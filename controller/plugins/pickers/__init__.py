"""Pickers: each chooses the GPU of a node for a job that requests part of a GPU."""
