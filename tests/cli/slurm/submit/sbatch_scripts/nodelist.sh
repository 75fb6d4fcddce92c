#!/bin/bash
#SBATCH -w n[1-2]
#SBATCH --ntasks-per-node=2

srun -l sh -c 'echo $SLURMD_NODENAME'
