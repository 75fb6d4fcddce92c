#!/bin/bash
#SBATCH -n 4
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-gpu=4
#SBATCH --mem-per-gpu=20G

srun --gpus-per-task=1 sh -c 'echo $CUDA_VISIBLE_DEVICES' | sort -u | wc -l
