"""Filters: each rejects the nodes that cannot hold a job's request."""
