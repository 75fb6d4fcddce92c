"""Reads job logs for the simulator: the Standard Workload Format (SWF) and tables of GPU jobs."""
