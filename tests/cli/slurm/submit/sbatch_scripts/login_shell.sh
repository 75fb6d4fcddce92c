#!/bin/bash -l
#SBATCH -p debug
#SBATCH -A physics
#SBATCH --qos=normal
#SBATCH -t 00:30:00

module load cuda 2>/dev/null
echo $SLURM_JOB_ACCOUNT
