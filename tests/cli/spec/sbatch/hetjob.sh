#!/bin/bash
#SBATCH --cpus-per-task=4 --mem-per-cpu=1G
#SBATCH hetjob
#SBATCH --gpus=1 --priority=9
srun ./master : ./worker
