#!/bin/bash
#SBATCH --job-n=short --cpus-per-t=2 --no-req

echo ok
