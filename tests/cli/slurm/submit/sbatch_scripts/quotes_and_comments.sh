#!/bin/bash
# Simulation of a river, see the README
#
#SBATCH --job-name='river model'     # a name with a space
#SBATCH	--time=15
#SBATCH --comment="it's the \"second\" try"
#SBATCH --output=%x.%j.txt --error=%x.%j.txt

# #SBATCH --nodes=400
#   SBATCH --nodes=500
#SBATCH --chdir=.
#SBATCH --export=ALL,TITLE='a b',EMPTY=

: "${SLURM_JOB_NUM_NODES:?}"
#SBATCH --nodes=600
test "$SLURM_JOB_NUM_NODES" = 1 || exit 2
test "$SLURM_JOB_NAME" = 'river model' || exit 3
test "$TITLE" = 'a b' || exit 4
test "${EMPTY-unset}" = '' || exit 5
