"""Slurm's commands that show jobs, such as squeue, sacct and sstat."""
