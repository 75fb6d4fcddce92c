#!/bin/bash
#SBATCH --begin=now+1
#SBATCH --deadline=now+2hours
#SBATCH -t 1

date
