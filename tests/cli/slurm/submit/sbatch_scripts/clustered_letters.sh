#!/bin/bash
#SBATCH -N1 -n4 -t30 -Jtight -ofirst-%j.txt

echo $SLURM_JOB_NAME
