#!/bin/bash
#SBATCH -J ddp-srun
#SBATCH -N 2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH -c 8
#SBATCH -t 2:00:00
#SBATCH --hint=nomultithread

export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
srun --kill-on-bad-exit=1 sh -c 'test $SLURM_NTASKS = 8 && echo rank $SLURM_PROCID local $SLURM_LOCALID'
