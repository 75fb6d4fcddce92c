#!/bin/bash
#SBATCH -N1 -n1
#SBATCH hetjob
#SBATCH -N1 -n4 --gres=gpu:1

srun --het-group=0,1 hostname
