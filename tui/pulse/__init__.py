"""The first view: history of the cluster's figures, all GPUs, alarms, and the jobs that start next."""
