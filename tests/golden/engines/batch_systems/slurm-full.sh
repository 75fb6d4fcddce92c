#!/bin/sh
#SBATCH --job-name=corral-0f3a9c112233-8-2-0
#SBATCH --no-requeue
#SBATCH --output=/dev/null
#SBATCH --error=/dev/null
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=16384M
#SBATCH --gres=gpu:a100:2
#SBATCH --nodelist=n1
#SBATCH --time=1-02:03:04
#SBATCH --partition=gpu
#SBATCH --account=proj-a
#SBATCH --qos=tight
#SBATCH --constraint=nvlink&hbm3
#SBATCH --licenses=matlab:1
#SBATCH --exclusive
#SBATCH --comment="r_sum_ __touch x_"
corral_dir="$HOME"/.corral/batch/corral-0f3a9c112233-8-2-0
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
export EPOCHS=3
export PROMPT='a
b'
umask 027
cd '/data/my project' || { : > "$corral_dir/no-workdir"; exit 73; }
exec python train.py --name 'it'"'"'s' < /dev/null >> /data/out.log 2>&1
)
code=$?
if [ -e "$corral_dir/no-workdir" ]; then record ended refused=73; exit 73; fi
record ended "code=$code"
exit $code
