#!/bin/bash
#SBATCH --job-name jupyter
#SBATCH --time 0-02:00
#SBATCH --mem 8G
#SBATCH --cpus-per-task 2

echo ssh -N -L 8888:$(hostname):8888 $USER@login
