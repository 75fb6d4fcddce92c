"""Chooses running jobs to stop so that a waiting job can start."""
