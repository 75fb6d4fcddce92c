"""Reads workload files. A workload is a set of tasks with dependencies; a matrix or a count makes one task
several jobs.
"""
