#!/bin/bash
#SBATCH --signal=B:USR1@60
#SBATCH --requeue
#SBATCH -t 10

save() { touch checkpoint; scontrol requeue $SLURM_JOB_ID; }
trap save USR1
sleep 0.1 & wait
