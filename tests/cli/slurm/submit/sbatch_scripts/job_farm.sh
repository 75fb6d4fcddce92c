#!/bin/bash
#SBATCH --ntasks=8 --mem-per-cpu=500M
#SBATCH -t 00:10:00
#SBATCH -o farm-%j.out
#SBATCH --oversubscribe --wckey=farm --qos=normal

# many short tasks, a step each, no more than the tasks of the allocation at a time
srun="srun --exclusive -N1 -n1 -c1 --quiet"
seq 1 12 | xargs -P "$SLURM_NTASKS" -I{} $srun sh -c 'echo {} $(({} * {}))' | sort -n | tail -1
echo "$(squeue -h -j "$SLURM_JOB_ID" -o '%C CPUs, %T')"
sstat -n -P -j "$SLURM_JOB_ID" -o JobID > /dev/null
