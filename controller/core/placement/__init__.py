"""Chooses nodes and GPUs for one job."""
