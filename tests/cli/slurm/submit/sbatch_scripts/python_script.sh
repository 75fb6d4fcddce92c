#!/usr/bin/env python3
#SBATCH -t 1
#SBATCH -J py

import os
print('job', os.environ['SLURM_JOB_ID'])
