#!/bin/bash
#SBATCH --partition=unkillable,main
#SBATCH --cpus-per-task=6
#SBATCH --gres=gpu:rtx8000:1
#SBATCH --mem=32G
#SBATCH --time=3:00:00
#SBATCH -o slurm-%j.out
python main.py
