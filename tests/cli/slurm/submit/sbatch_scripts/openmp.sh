#!/bin/bash
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --threads-per-core=1

export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
test $OMP_NUM_THREADS = 16
