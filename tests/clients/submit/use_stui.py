"""Uses the part of stui that runs Slurm's commands: the cluster, the partitions, the jobs, and cancel."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from typing import Any

from stui.backend import Cluster


def until(true: Callable[[], bool]) -> None:
    """Wait, and fail after two minutes."""
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.2)


def main() -> None:
    """Print one line for each use."""
    ours = (
        "sbatch",
        "--parsable",
        "-p",
        "gpu",
        "-J",
        "seen",
        "-t",
        "5",
        "--gres=gpu:2",
        "--wrap",
        "sleep 600",
    )
    job = subprocess.run(ours, capture_output=True, text=True, check=True).stdout.strip()
    rows = (*ours[:-2], "--array=0-3%2", "--wrap", "sleep 600")
    array = subprocess.run(rows, capture_output=True, text=True, check=True).stdout.strip()
    reads, writes = os.pipe()
    cluster: Any = Cluster()
    cluster.connect(writes)
    print("ready", os.read(reads, 100).decode())
    print("cluster", cluster.get_name().strip(), cluster.my_partitions == cluster.all_partitions)

    def seen(number: str) -> list[Any]:
        return [each for each in cluster.get_jobs() if each.job_id_base == number]

    until(lambda: bool(seen(job)) and seen(job)[0].is_running())
    found = seen(job)[0]
    print("job", found.name, found.partition, found.uses_gpu(), found.is_array_job, len(found.nodes))
    waiting = [each for each in seen(array) if each.is_pending()]
    print("array", [each.is_array_job for each in waiting], waiting[0].array_str())
    cluster.cancel_jobs([found])
    until(lambda: not seen(job))
    cluster.cancel_my_jobs()
    until(lambda: not seen(array))
    print("cancelled")


if __name__ == "__main__":
    main()
