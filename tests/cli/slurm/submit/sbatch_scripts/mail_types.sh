#!/bin/bash
#SBATCH --mail-user=first.last+jobs@uni.example.org
#SBATCH --mail-type=BEGIN,END,FAIL,REQUEUE,TIME_LIMIT_80,ARRAY_TASKS,INVALID_DEPEND,STAGE_OUT
#SBATCH --deadline=now+2days
#SBATCH --time-min=00:05:00
#SBATCH --time=1:0:0
#SBATCH --acctg-freq=task=30 --profile=none
#SBATCH --licenses=ansys:1

scontrol show job $SLURM_JOB_ID | grep -o 'TimeLimit=[0-9:]*'
