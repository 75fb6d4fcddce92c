"""Runs commands in the allocations of running jobs (exec, attach), and sends logs to the controller."""
