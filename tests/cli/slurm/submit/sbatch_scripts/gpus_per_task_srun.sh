#!/bin/bash
#SBATCH --ntasks=4
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-gpu=6
#SBATCH --mem-per-gpu=16G
#SBATCH --gpu-bind=single:1

srun --gpus-per-task=1 bash -c 'echo "$SLURM_LOCALID ${CUDA_VISIBLE_DEVICES}"' | sort > "gpus.$SLURM_JOB_ID"
[ "$(awk '{print $2}' "gpus.$SLURM_JOB_ID" | sort -u | wc -l)" -eq 4 ] || { cat "gpus.$SLURM_JOB_ID"; exit 1; }
test "$SLURM_GPUS_PER_TASK" = 1
test "$SLURM_CPUS_PER_GPU" = 6
