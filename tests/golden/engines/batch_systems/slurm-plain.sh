#!/bin/sh
#SBATCH --job-name=corral-0f3a9c112233-7-1-0
#SBATCH --no-requeue
#SBATCH --output=/dev/null
#SBATCH --error=/dev/null
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
directory="$HOME"/.corral/batch/corral-0f3a9c112233-7-1-0
umask 077
mkdir -p "$directory" || exit 74
if ! mkdir "$directory/claim"; then
    if [ -d "$directory/claim" ]; then exit 75; else exit 74; fi
fi
record() {
    printf '%s\n' "at=$(date +%s) host=$(hostname) job=${SLURM_JOB_ID:-} $2" > "$directory/$1.new" && mv -f "$directory/$1.new" "$directory/$1"
}
record started "pid=$$"
trap : TERM INT HUP USR1 USR2 XCPU
(
umask 022
exec python train.py < /dev/null > "$directory/stdout" 2> "$directory/stderr"
)
code=$?
if [ -e "$directory/no-workdir" ]; then record ended refused=73; exit 73; fi
record ended "code=$code"
exit $code
