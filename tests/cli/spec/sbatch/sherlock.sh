#!/bin/bash
#SBATCH --job-name=gpu_test
#SBATCH -p gpu
#SBATCH -c 10
#SBATCH -G 1
#SBATCH --time=2:00:00
#SBATCH --mail-type=BEGIN,END,FAIL
#SBATCH --error=gpu_%j.err
nvidia-smi
