#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks=6
#SBATCH --exclusive
#SBATCH --switches=1

srun --mpi=pmi2 sh -c 'echo $SLURM_PROCID of $SLURM_NPROCS on $SLURMD_NODENAME'
