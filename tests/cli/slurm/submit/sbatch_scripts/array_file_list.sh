#!/bin/bash -e
#SBATCH -J align                    # the name in squeue
#SBATCH -a 1-12:4%2                 # every fourth sample, two at a time
#SBATCH -o align_%A_%a.log -e align_%A_%a.err
#SBATCH --mem=4000
#SBATCH -c 2 -t 0-1

list=samples.$SLURM_ARRAY_JOB_ID.$SLURM_ARRAY_TASK_ID.txt
for sample in {01..12}; do echo "sample_$sample.fastq.gz"; done > "$list"
sample=$(sed -n "${SLURM_ARRAY_TASK_ID}p" "$list")
echo "$SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT: bwa mem -t $SLURM_CPUS_PER_TASK ${sample%.fastq.gz}"
test "$SLURM_ARRAY_TASK_STEP" = 4
[ "$SLURM_ARRAY_TASK_COUNT" -eq 3 ] && [ "$SLURM_CPUS_PER_TASK" -eq 2 ]
