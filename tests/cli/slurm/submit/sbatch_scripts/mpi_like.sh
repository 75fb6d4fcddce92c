#!/bin/bash
#SBATCH -n 16
#SBATCH -c 2
#SBATCH --mem-per-cpu=1024M
#SBATCH --distribution=block:cyclic
#SBATCH --ntasks-per-core=1

srun -l hostname | sort -n
echo tasks $SLURM_NTASKS
