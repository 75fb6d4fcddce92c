"""Stores the journal and the rows of jobs, nodes and notes."""
