"""Engines for batch systems (Slurm and PBS): one job of Corral becomes one job of the batch system."""
