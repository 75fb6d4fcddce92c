#!/usr/bin/env bash
#SBATCH --array=2-6:2%2
#SBATCH --output=%x_%A_%a.txt
#SBATCH --time=5 --mem=200M --cpus-per-task=1

set -euo pipefail
read -r name rate < <(sed -n "${SLURM_ARRAY_TASK_ID}p" <<'TABLE'
none 0
small 0.1
none 0
middle 0.01
none 0
large 0.001
TABLE
)
printf '%s %s of %d..%d\n' "$name" "$rate" "$SLURM_ARRAY_TASK_MIN" "$SLURM_ARRAY_TASK_MAX"
