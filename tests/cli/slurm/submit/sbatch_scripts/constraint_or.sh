#!/bin/bash
#SBATCH --constraint="a100|h100"
#SBATCH --gpus=1
#SBATCH --time=10:00
#SBATCH --no-requeue

test -n "$CUDA_VISIBLE_DEVICES" && echo "one GPU: $SLURM_GPUS"
