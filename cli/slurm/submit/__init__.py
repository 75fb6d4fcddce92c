"""Slurm's commands that submit jobs: sbatch, salloc and srun."""
