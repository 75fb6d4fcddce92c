#!/bin/bash
#SBATCH --job-name="conda job"
#SBATCH --partition=gpu
#SBATCH --gpus=1
#SBATCH --mem=16G
#SBATCH --mail-type=END,FAIL
#SBATCH --mail-user=ada@example.org

source ~/miniconda3/etc/profile.d/conda.sh 2>/dev/null
conda activate torch 2>/dev/null
which python3 || true
nvidia-smi 2>/dev/null || echo "GPUs: $CUDA_VISIBLE_DEVICES"
