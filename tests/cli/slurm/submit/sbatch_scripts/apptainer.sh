#!/bin/bash
#SBATCH --gpus-per-node=1
#SBATCH --mem=32G

IMAGE=pytorch.sif
command -v apptainer || echo apptainer exec --nv $IMAGE python train.py
