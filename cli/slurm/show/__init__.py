"""Slurm's commands that show: squeue, sinfo, sacct, scontrol show and others."""
