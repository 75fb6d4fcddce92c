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
directory="$HOME"/.corral/batch/corral-0f3a9c112233-8-2-0
umask 077
mkdir -p "$directory" || exit 74
if ! mkdir "$directory/claim"; then
    if [ -d "$directory/claim" ]; then exit 75; else exit 74; fi
fi
record() {
    printf '%s\n' "at=$(date +%s) host=$(hostname) job=${PBS_JOBID:-} $2" > "$directory/$1.new" && mv -f "$directory/$1.new" "$directory/$1"
}
record started "pid=$$"
trap : TERM INT HUP USR1 USR2 XCPU
(
umask 022
cd '/data/my project' || { : > "$directory/no-workdir"; exit 73; }
exec python train.py < /dev/null > "$directory/stdout" 2> "$directory/stderr"
)
code=$?
if [ -e "$directory/no-workdir" ]; then record ended refused=73; exit 73; fi
record ended "code=$code"
exit $code
