#!/bin/bash
#SBATCH --licenses=ansys:1
#SBATCH -t 10

echo solver
