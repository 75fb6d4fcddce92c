#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:h100:2
#SBATCH --ntasks-per-node=2
#SBATCH --signal=SIGUSR1@90
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --time=0-04:00:00

export NCCL_DEBUG=WARN PYTHONFAULTHANDLER=1
srun --cpu-bind=none sh -c 'echo fit on $CUDA_VISIBLE_DEVICES'
