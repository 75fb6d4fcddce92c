"""Run time predictions from the history of similar jobs."""
