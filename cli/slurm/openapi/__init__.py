"""The output of squeue, sinfo and sacct with --json and --yaml: the objects of Slurm's schema v0.0.38."""
