#!/bin/sh
#SBATCH --job-name=corral-0f3a9c112233-7-1-0
#SBATCH --no-requeue
#SBATCH --output=/dev/null
#SBATCH --error=/dev/null
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
corral_dir="$HOME"/.corral/batch/corral-0f3a9c112233-7-1-0
umask 077
mkdir -p "$corral_dir" || exit 74
if ! mkdir "$corral_dir/claim"; then
    if [ -d "$corral_dir/claim" ]; then exit 75; else exit 74; fi
fi
record() {
    printf '%s\n' "at=$(date +%s) host=$(hostname) job=${SLURM_JOB_ID:-} $2" > "$corral_dir/$1.new" && mv -f "$corral_dir/$1.new" "$corral_dir/$1"
}
record started "pid=$$"
trap : TERM INT HUP USR1 USR2 XCPU
(
umask 022
exec python train.py < /dev/null > "$corral_dir/stdout" 2> "$corral_dir/stderr"
)
code=$?
if [ -e "$corral_dir/no-workdir" ]; then record ended refused=73; exit 73; fi
record ended "code=$code"
exit $code
