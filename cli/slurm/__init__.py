"""The commands of Slurm, such as sbatch and squeue, with Slurm's options, outputs and exit codes."""
