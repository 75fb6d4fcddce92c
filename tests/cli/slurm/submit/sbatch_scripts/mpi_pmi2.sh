#!/bin/bash
#SBATCH -J vasp
#SBATCH -A default
#SBATCH --nodes=2 --ntasks-per-node=2 --cpus-per-task=1
#SBATCH --hint=nomultithread --distribution=block:block
#SBATCH -t 0-00:20
#SBATCH -o %x.o%j -e %x.e%j

module() { :; }
module load PrgEnv-gnu cray-mpich 2> /dev/null
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK OMP_PLACES=cores SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
cd "$SLURM_SUBMIT_DIR" || exit 1
srun --mpi=pmi2 --cpu-bind=cores --unbuffered --kill-on-bad-exit=1 --label printenv SLURM_PROCID | sort
