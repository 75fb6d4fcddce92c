"""Reads files of workloads: tasks with dependencies, matrices and counts."""
