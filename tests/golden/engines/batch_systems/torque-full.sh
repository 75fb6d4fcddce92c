#!/bin/sh
#PBS -N corral-0f3a9c112233-8-2-0
#PBS -r n
#PBS -o /dev/null
#PBS -e /dev/null
#PBS -l nodes=gpu01:ppn=4:gpus=2
#PBS -l mem=16384mb
#PBS -l walltime=26:03:04
#PBS -q gpuq
#PBS -A proj-a
#PBS -l place=excl
corral_dir="$HOME"/.corral/batch/corral-0f3a9c112233-8-2-0
umask 077
[ -d "$corral_dir" ] || sleep 3
[ -d "$corral_dir" ] || exit 74
record() {
    printf '%s\n' "at=$(date +%s) host=$(hostname) job=${PBS_JOBID:-} $2" > "$corral_dir/$1.new" && mv -f "$corral_dir/$1.new" "$corral_dir/$1"
}
if ! mkdir "$corral_dir/claim"; then
    [ -d "$corral_dir/claim" ] || exit 74
    record again; exit 75
fi
record started "pid=$$"
trap : TERM INT HUP USR1 USR2 XCPU
(
umask 022
cd '/data/my project' || { : > "$corral_dir/no-workdir"; exit 73; }
exec python train.py < /dev/null > "$corral_dir/stdout" 2> "$corral_dir/stderr"
)
code=$?
if [ -e "$corral_dir/no-workdir" ]; then record ended refused=73; exit 73; fi
record ended "code=$code"
exit $code
