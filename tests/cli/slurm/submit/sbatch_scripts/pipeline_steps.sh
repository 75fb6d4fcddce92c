#!/bin/bash
#SBATCH -n 2
#SBATCH -c 1

srun -n1 --exclusive sh -c 'echo one' &
srun -n1 --exclusive sh -c 'echo two' &
wait
