#!/bin/sh
#SBATCH --mail-type=END,FAIL,TIME_LIMIT --mail-user=ada@example.org
#SBATCH -p default,long
#SBATCH -c 2 --mem=1GB -t 1:00:00
#SBATCH --begin=now --deadline=tomorrow --get-user-env --profile=none

srun -n1 true
squeue --me -h -o "%.18i %.9P %.8T %.10l %.4C %R" -j $SLURM_JOB_ID | tr -s ' '
scontrol -o show job $SLURM_JOB_ID | tr ' ' '\n' | grep -E '^(NumCPUs|MinMemoryNode|Partition|TimeLimit)='
sstat -n -P -j $SLURM_JOB_ID.batch -o JobID | grep -c "$SLURM_JOB_ID.batch"
