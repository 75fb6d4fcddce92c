"""Runs the steps of srun: computes the tasks and their nodes, starts the tasks, and records the steps."""
