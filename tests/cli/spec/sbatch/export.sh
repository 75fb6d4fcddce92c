#!/bin/bash
#SBATCH --export=ALL,OMP_NUM_THREADS=4
#SBATCH --nice=100
#SBATCH --begin=now+1hour
#SBATCH --comment="nightly run"
#SBATCH --cpus-per-task=4
./simulate
