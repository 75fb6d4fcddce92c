#!/bin/bash
#SBATCH --dependency=afterok:101:102
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --time=10
#SBATCH --mem=1G
python collect.py
