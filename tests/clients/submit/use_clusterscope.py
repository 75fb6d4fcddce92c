"""Uses clusterscope: the cluster outside of a job, and the ranks of srun in a job."""

from __future__ import annotations

import subprocess
import sys

import clusterscope

RANKS = (
    "import os, clusterscope; job = clusterscope.get_job(); "
    "line = ['rank', job.get_global_rank(), job.get_local_rank(), job.get_world_size(), job.get_job_name()]; "
    "line.append(job.get_master_addr() != ''); "
    # one write, because the lines of the tasks must not mix
    "os.write(1, (' '.join(map(str, line)) + '\\n').encode())"
)


def main() -> None:
    """Print one line for each use."""
    print("cluster", clusterscope.cluster(), clusterscope.slurm_version())
    # Other clients of the same cluster may have made further partitions.
    print("cpus", [each.cpu_count for each in clusterscope.cpus() if each.partition == "default"])
    print("memory", [each.mem_total_MB for each in clusterscope.mem() if each.partition == "default"])
    made = clusterscope.job_gen_task_slurm(partition="default", gpus_per_task=2)
    print("task", made["cpus_per_task"], made["gpus_per_task"])
    words = (
        "srun",
        "-J",
        "ranked",
        "-p",
        "gpu",
        "-N",
        "2",
        "-n",
        "4",
        "-t",
        "5",
        sys.executable,
        "-c",
        RANKS,
    )
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    print(*sorted(done.stdout.splitlines()), sep="\n")


if __name__ == "__main__":
    main()
