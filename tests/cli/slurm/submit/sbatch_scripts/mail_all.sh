#!/bin/bash
#SBATCH --mail-type=ALL
#SBATCH --mail-user=someone@example.org
#SBATCH -t 1

true
