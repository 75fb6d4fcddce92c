#!/bin/bash
#SBATCH --tmp=10G
#SBATCH --mem=2000

cd ${CORRAL_SCRATCH:-/tmp} && touch work
