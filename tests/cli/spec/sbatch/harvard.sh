#!/bin/bash
#SBATCH -J pytorch
#SBATCH -n 4
#SBATCH -N 1
#SBATCH -t 0-00:30
#SBATCH -p gpu_test
#SBATCH --gres=gpu:1
#SBATCH --mem-per-gpu=40G
#SBATCH -o output_%j.out
#SBATCH -e errors_%j.err
#SBATCH --mail-user=someone@example.org
python check.py
