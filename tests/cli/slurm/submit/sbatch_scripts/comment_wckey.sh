#!/bin/bash
#SBATCH --comment='a note; with marks'
#SBATCH --wckey=project-x
#SBATCH --nice=100

true
