"""Uses simple-slurm and slurmpy as their documentation shows: an array, a dependency, srun, and retries."""

from __future__ import annotations

from simple_slurm import Slurm
from slurmpy import Slurm as SlurmPy


def main() -> None:
    """Print the ids of the jobs."""
    array = Slurm(array=range(2), cpus_per_task=1, job_name="simple", time="0:5:0", output="s_%A_%a.out")
    first = array.sbatch("echo", Slurm.SLURM_ARRAY_TASK_ID, verbose=False)
    after = Slurm(dependency={"afterok": first}, job_name="after").sbatch("echo after", verbose=False)
    code = Slurm(ntasks=1, mem="200").srun("true")
    retried = SlurmPy("spy", {"time": "00:02:00"}, log_dir="spylog").run("exit 1", tries=2)
    print(first, after, code, retried)


if __name__ == "__main__":
    main()
