#!/bin/bash
#SBATCH --gpus=2 --ntasks=2 --gpus-per-task=1
#SBATCH --mem-per-gpu=4G --cpus-per-gpu=2 --gpu-bind=closest
#SBATCH --time=00:10:00

srun --ntasks=1 python3 - "$SLURM_JOB_ID" <<'PYTHON'
import os, sys
print("job", sys.argv[1] == os.environ["SLURM_JOB_ID"], "GPUs", len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")))
PYTHON
srun --gpus-per-task=1 bash -c 'echo "$SLURM_PROCID: $(tr , "\n" <<< "$CUDA_VISIBLE_DEVICES" | wc -l)"' | sort
