#!/usr/bin/env bash
#SBATCH --nodes 1-2 --ntasks-per-node=4 --use-min-nodes
#SBATCH --gpus-per-node 2
#SBATCH --mem 0
#SBATCH --exclusive=user
#SBATCH --switches=1@00:10:00
#SBATCH --job-name "elastic run"

total=$((SLURM_JOB_NUM_NODES * 4))
srun -l hostname > "ranks.$SLURM_JOB_ID"
test "$(wc -l < "ranks.$SLURM_JOB_ID")" -eq "$total"
echo "$SLURM_JOB_NAME"
