#!/bin/bash
#SBATCH --licenses=matlab:2,ansys
#SBATCH --nodelist=gpu[1-2]
#SBATCH --ntasks=8
#SBATCH --tmp=20G
#SBATCH --chdir=/tmp
#SBATCH --gpus-per-node=2
matlab -batch run
