#!/bin/bash
#SBATCH --gres=gpu:2
#SBATCH --cpus-per-task=8
#SBATCH --mem=64g
#SBATCH --time=12:00:00
#SBATCH --job-name=vllm

PORT=$((8000 + SLURM_JOB_ID % 1000))
echo vllm serve --tensor-parallel-size $SLURM_GPUS_ON_NODE --port $PORT
