#!/bin/bash
#SBATCH --job-name=everything
#SBATCH --clusters=emu2
#SBATCH --bb="jobdw type=scratch capacity=100GB"
#SBATCH --uid=ada
#SBATCH --priority=100000
#SBATCH --input=data.txt
#SBATCH --constraint="haswell&ssd"
#SBATCH --gres=craynetwork:1,gpu:1
#SBATCH --container=/images/bundle
#SBATCH --tres-per-task=cpu:4
#SBATCH --mem=4G --mem-per-cpu=2G
#SBATCH --dependency=afterok:12+5
#SBATCH --export-file=env.txt

srun ./program
