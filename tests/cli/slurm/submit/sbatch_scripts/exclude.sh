#!/bin/bash
#SBATCH --exclude=n2
#SBATCH -N1

test $SLURMD_NODENAME = n1
