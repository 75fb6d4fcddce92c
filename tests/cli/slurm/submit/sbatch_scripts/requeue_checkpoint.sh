#!/bin/bash
#SBATCH --job-name=restartable
#SBATCH --signal=B:USR2@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --time=0-00:10:00
#SBATCH --output=restartable-%j.out

ckpt="checkpoint.$SLURM_JOB_ID"
requeue() {
    echo "USR2 in attempt ${SLURM_RESTART_COUNT:-0}"
    echo saved > "$ckpt"
    scontrol requeue "$SLURM_JOB_ID"
    sleep 600 & wait
}
trap requeue USR2
if [ -e "$ckpt" ]; then
    echo "resumed in attempt $SLURM_RESTART_COUNT from $(cat "$ckpt")"
    exit 0
fi
scancel --batch --signal=USR2 "$SLURM_JOB_ID" &
while true; do sleep 0.2; done
