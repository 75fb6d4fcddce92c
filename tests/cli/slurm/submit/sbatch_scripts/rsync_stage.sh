#!/bin/bash
#SBATCH -p transfer
#SBATCH -t 60
#SBATCH --mem=500M
#SBATCH --ignore-pbs

mkdir -p stage && cp /etc/hosts stage/
