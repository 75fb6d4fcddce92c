"""Uses submitit as its documentation shows: one job, an array, a failure, several tasks, and a cancel."""

from __future__ import annotations

import time
from typing import Any

import submitit


def add(first: int, second: int) -> int:
    """A task."""
    return first + second


def fail() -> None:
    """A task with an error."""
    raise ValueError("wrong")


def place() -> tuple[int, int, int]:
    """The rank, and the numbers of tasks and nodes."""
    found = submitit.JobEnvironment()
    return found.global_rank, found.num_tasks, found.num_nodes


def main() -> None:
    """Print one line for each use."""
    executor: Any = submitit.AutoExecutor(folder="logs/%j", cluster="slurm")
    executor.update_parameters(timeout_min=3, slurm_partition="gpu", mem_gb=1, cpus_per_task=1)
    print("one", executor.submit(add, 1, 2).result())
    with executor.batch():
        jobs = [executor.submit(add, number, number) for number in range(3)]
    print("array", [job.result() for job in jobs])
    try:
        executor.submit(fail).result()
    except submitit.core.utils.FailedJobError as error:
        print("failed", "ValueError: wrong" in str(error))
    executor.update_parameters(nodes=2, tasks_per_node=2)
    print("tasks", executor.submit(place).results())
    executor.update_parameters(nodes=1, tasks_per_node=1)
    sleeps = executor.submit(time.sleep, 600)
    while sleeps.state != "RUNNING":
        time.sleep(0.2)
    sleeps.cancel()
    while not sleeps.done():
        time.sleep(0.2)
    print("cancelled", sleeps.state.startswith("CANCELLED"))


if __name__ == "__main__":
    main()
