#!/bin/bash
#SBATCH -C [h100|a100]&gpu
#SBATCH --gres=gpu:h100:1
#SBATCH -N 2
#SBATCH -t 5

srun -N2 -n2 sh -c 'echo "$SLURMD_NODENAME"' | sort
