#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --gpus-per-node=1

nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
head=${nodes[0]}
srun --nodes=1 --ntasks=1 -w "$head" echo ray start --head
srun --nodes=1 --ntasks=1 -w "${nodes[1]}" echo ray start --address=$head:6379
