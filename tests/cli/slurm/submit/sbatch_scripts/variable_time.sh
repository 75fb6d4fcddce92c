#!/bin/bash
#SBATCH --qos=normal --constraint=gpu
#SBATCH --nodes=1 --time=00:30:00 --time-min=00:10:00
#SBATCH --signal=B:USR1@60
#SBATCH --requeue --open-mode=append
#SBATCH --comment=96:00:00
#SBATCH --error=%x-%j.err

requeue_job() {
    touch "seen.$SLURM_JOB_ID"
    scontrol requeue "$SLURM_JOB_ID"
    sleep 60
}
trap requeue_job USR1
echo "restarts: ${SLURM_RESTART_COUNT:-0}, $(scontrol show job "$SLURM_JOB_ID" | grep -o 'Restarts=[0-9]*')"
[ -e "seen.$SLURM_JOB_ID" ] && exit 0
srun sleep 60 &
( sleep 1; scancel --batch --signal=USR1 "$SLURM_JOB_ID" ) &
wait
