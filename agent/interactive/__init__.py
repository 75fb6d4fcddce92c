"""Runs commands in the allocations of running jobs (`corral exec`), runs the health checks of jobs, and sends
logs to the controller.
"""
