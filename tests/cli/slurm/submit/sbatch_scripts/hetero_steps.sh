#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks=5
#SBATCH --cpus-per-task=2
#SBATCH --gpus-per-node=h100:2

# a coupled model: one step per component, at the same time, each on a part of the allocation
srun --nodes=1 --ntasks=3 --exact --overlap echo ocean > "ocean.$SLURM_JOB_ID" &
srun --nodes=1 --ntasks=2 --exact --gpus=1 sh -c 'echo atmosphere on GPU $CUDA_VISIBLE_DEVICES' > "air.$SLURM_JOB_ID" &
wait
cat "ocean.$SLURM_JOB_ID" "air.$SLURM_JOB_ID" | sort | uniq -c | sed 's/^ *//'
echo "$SLURM_TASKS_PER_NODE"
