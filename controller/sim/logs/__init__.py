"""Job logs that the simulator reads: Standard Workload Format and tables of GPU jobs."""
