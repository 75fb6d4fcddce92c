#!/bin/bash
#SBATCH --exclusive
#SBATCH --nodes=1 --ntasks-per-node=4 --mem=0
#SBATCH --time=15

# many small steps on a whole node, four at a time
for sample in a b c d e f; do
    srun --exact -n1 -c1 --mem=0 -Q sh -c "echo $sample > sample.\$SLURM_JOB_ID.$sample" &
    while [ "$(jobs -rp | wc -l)" -ge 4 ]; do wait -n; done
done
wait
cat sample."$SLURM_JOB_ID".* | tr -d '\n'
printf '%s' a b c d | xargs -P "$SLURM_CPUS_ON_NODE" -I{} true
