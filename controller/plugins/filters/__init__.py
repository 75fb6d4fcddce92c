"""Filters: each rejects the nodes that cannot run a job, for one reason, such as labels or free GPUs."""
