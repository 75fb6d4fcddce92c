#!/bin/bash
#SBATCH -C h100
#SBATCH --gres=gpu:1
#SBATCH -t 15

echo $SLURM_GPUS_ON_NODE
