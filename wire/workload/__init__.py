"""Workloads: tasks with dependencies that are submitted together, and the API bodies about them."""
