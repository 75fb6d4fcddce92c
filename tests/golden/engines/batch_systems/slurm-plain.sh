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
[ -d "$corral_dir" ] || sleep 3
[ -d "$corral_dir" ] || exit 74
record() {
    printf '%s\n' "at=$(date +%s) host=$(hostname) job=${SLURM_JOB_ID:-} $2" > "$corral_dir/$1.new" && mv -f "$corral_dir/$1.new" "$corral_dir/$1"
}
if ! mkdir "$corral_dir/claim"; then
    [ -d "$corral_dir/claim" ] || exit 74
    record again; exit 75
fi
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
