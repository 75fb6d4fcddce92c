#!/bin/bash
#SBATCH --job-name=llama-ft
#SBATCH --partition=gpu
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1        # torchrun starts one process per GPU
#SBATCH --gres=gpu:h100:4
#SBATCH --cpus-per-task=16
#SBATCH --mem=128GB
#SBATCH --output="logs/%x_%j.out"
#SBATCH --error="logs/%x_%j.err"
#SBATCH --comment="fine tuning; seed #7"

nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
head_node=${nodes[0]}
head_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" sh -c 'echo 127.0.0.1')
export MASTER_ADDR=$head_ip MASTER_PORT=$(expr 10000 + $(echo -n $SLURM_JOBID | tail -c 4))
export WORLD_SIZE=$(($SLURM_NNODES * ${SLURM_GPUS_ON_NODE}))
srun --export=ALL,NCCL_DEBUG=INFO --wait=60 --kill-on-bad-exit=1 bash -c "
  echo torchrun --nnodes \$SLURM_NNODES --node-rank \$SLURM_PROCID --nproc-per-node 4 \
    --rdzv-id $RANDOM --rdzv-backend c10d --rdzv-endpoint $head_ip:$MASTER_PORT train.py debug=\$NCCL_DEBUG"
test "$WORLD_SIZE" = 8
