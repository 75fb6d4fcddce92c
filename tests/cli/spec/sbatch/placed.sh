#!/bin/bash
#SBATCH --exclude=gpu[03-05],gpu09
#SBATCH --gpus=h100:2
#SBATCH --reservation=course
#SBATCH --time-min=01:00:00
#SBATCH --time=04:00:00
#SBATCH --wait
#SBATCH --no-requeue
python train.py
