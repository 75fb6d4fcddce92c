"""The machine pool of pilots: allocations of Slurm in which Corral's agent runs several jobs."""
