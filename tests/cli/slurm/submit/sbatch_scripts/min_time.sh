#!/bin/bash
#SBATCH --time=2-12 --time-min=01:00:00

true
