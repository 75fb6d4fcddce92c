"""Chooses nodes and GPUs for a job."""
