#!/bin/bash
#SBATCH --parsable
#SBATCH --quiet
#SBATCH --verbose
#SBATCH --overcommit
#SBATCH --contiguous
#SBATCH --cpu-freq=high

true
