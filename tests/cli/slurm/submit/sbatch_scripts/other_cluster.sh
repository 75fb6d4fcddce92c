#!/bin/bash
#SBATCH --clusters=other
#SBATCH --bb=capacity=10GB
#SBATCH -t 10

true
