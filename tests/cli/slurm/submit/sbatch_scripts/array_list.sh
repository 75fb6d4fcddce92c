#!/bin/bash
#SBATCH --array=1,3,7
#SBATCH --time=5:00

test $SLURM_ARRAY_TASK_MIN = 1 && test $SLURM_ARRAY_TASK_MAX = 7
