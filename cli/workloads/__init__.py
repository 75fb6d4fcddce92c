"""Reads workload files. A workload is a set of tasks with dependencies. A task with a matrix or a count
becomes several jobs.
"""
