#!/bin/bash
#SBATCH --job-name=modules
#SBATCH --account=default
##SBATCH --partition=largemem
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:1
#SBATCH --mem-per-cpu=3900M
#SBATCH --time=08:00:00
#SBATCH --export=ALL,WANDB_MODE=offline,OMP_PROC_BIND=true

set -euo pipefail
module() { echo "module $*"; }
module purge
module load gcc/12.2.0 cuda/12.1 \
            python/3.11
eval "$(conda shell.bash hook 2>/dev/null || true)"
conda activate "${CONDA_ENV:-base}" 2>/dev/null || true
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
echo "threads $OMP_NUM_THREADS, wandb $WANDB_MODE, memory $SLURM_MEM_PER_CPU"
