#!/bin/bash
#SBATCH -a 10-30:10
#SBATCH -n 1
#SBATCH --mem-per-cpu=2G

sed -n "$((SLURM_ARRAY_TASK_ID / 10))p" /etc/passwd
