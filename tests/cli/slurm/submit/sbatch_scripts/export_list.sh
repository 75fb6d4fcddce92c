#!/bin/bash
#SBATCH --export=ALL,STAGE=two,EMPTY=

test "$STAGE" = two
