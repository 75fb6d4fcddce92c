#!/bin/bash
#SBATCH --export=NONE
#SBATCH --get-user-env

env | sort | head -3
