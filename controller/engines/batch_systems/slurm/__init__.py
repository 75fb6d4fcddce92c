"""The dialect of Slurm: scripts for sbatch, and the outputs of squeue, sacct and sinfo."""
