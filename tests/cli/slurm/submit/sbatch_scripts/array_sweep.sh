#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --array=0-3%2
#SBATCH --cpus-per-task=2
#SBATCH --mem=4GB
#SBATCH --output=%x_%A_%a.log

RATES=(0.1 0.01 0.001 0.0001)
echo "lr=${RATES[$SLURM_ARRAY_TASK_ID]} of $SLURM_ARRAY_TASK_COUNT"
