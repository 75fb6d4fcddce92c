#!/bin/bash
#SBATCH -D /tmp
#SBATCH -o /dev/null

test $PWD = /tmp
