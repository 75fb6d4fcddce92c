#!/bin/bash
#SBATCH --nodes=1-2
#SBATCH --ntasks-per-node=1

echo $SLURM_JOB_NUM_NODES
