#!/bin/bash
#SBATCH --nodes=1 --ntasks=4 --hint=nomultithread
#SBATCH --distribution=block:block --mem-bind=local
#SBATCH --tmp=1G
#SBATCH --time=30

export APPTAINER_CACHEDIR=${TMPDIR:-/tmp}/apptainer-$SLURM_JOB_ID APPTAINER_BINDPATH="$SLURM_SUBMIT_DIR:/work"
IMG="$SLURM_SUBMIT_DIR/solver.sif"
run="apptainer exec --nv --cleanenv --env OMP_NUM_THREADS=1 $IMG ./solver"
command -v apptainer > /dev/null || run="echo $run"
srun --mpi=none --cpu-bind=cores $run | uniq -c | grep -q '^ *4 '
