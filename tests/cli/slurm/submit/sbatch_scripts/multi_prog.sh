#!/bin/bash
#SBATCH -n 6
#SBATCH -N 2
#SBATCH --time=00:05:00

cat > "roles.$SLURM_JOB_ID" <<END
# rank   program
0        echo master %t of $SLURM_NTASKS
1-2      echo server %t is number %o
3,5      sh -c 'echo "client \$SLURM_PROCID"'
*        echo spare %t
END
srun --multi-prog "roles.$SLURM_JOB_ID" | sort
