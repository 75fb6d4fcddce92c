#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --array=0-15%4
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --mem-per-cpu=2G
#SBATCH --output=logs/%A_%a.out
#SBATCH --time=00:30:00
echo "$SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT"
