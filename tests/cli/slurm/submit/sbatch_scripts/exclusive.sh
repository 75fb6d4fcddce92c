#!/bin/bash
#SBATCH --exclusive
#SBATCH -N 1
#SBATCH --mem=0

nproc
