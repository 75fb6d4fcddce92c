#!/bin/bash
#SBATCH --tmp=1G --licenses=ansys:1
#SBATCH --time=10 --nice=50 --no-kill

set -eu
WORK=$(mktemp -d "${TMPDIR:-/tmp}/run.XXXXXX")
finish() { cp "$WORK"/*.dat "$SLURM_SUBMIT_DIR/result.$SLURM_JOB_ID"; rm -rf "$WORK"; }
trap finish EXIT
echo 42 > "$SLURM_SUBMIT_DIR/input.$SLURM_JOB_ID"
sbcast --force "$SLURM_SUBMIT_DIR/input.$SLURM_JOB_ID" "$WORK/input"
awk '{print $1 * 2}' "$WORK/input" > "$WORK/out.dat"
