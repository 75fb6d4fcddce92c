"""Uses cluster-tools as its documentation shows: an array, a failure, a hard death, and a kill of all."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from typing import Any

import cluster_tools

RESOURCES = {"partition": "gpu", "mem": "500M", "time": "5", "cpus-per-task": "1"}


def square(number: int) -> int:
    """A task."""
    return number * number


def fail(number: int) -> None:
    """A task with an error."""
    raise ValueError(f"wrong {number}")


def die(_number: int) -> None:
    """A task that a signal ends."""
    os.kill(os.getpid(), signal.SIGKILL)


def fill_memory(_number: int) -> int:
    """A task that needs more memory than it has."""
    return len(b"x" * 2_000_000_000)


def error(executor: Any, task: Any) -> str:
    """The name of the error of a task."""
    return type(executor.submit(task, 1).exception()).__name__


def main() -> None:
    """Print one line for each use."""
    logging.disable(logging.CRITICAL)
    with cluster_tools.get_executor("slurm", job_resources=RESOURCES) as executor:
        print("array", list(executor.map(square, range(5))))
        print("failed", error(executor, fail))
        print("died", error(executor, die))
        print("memory", error(executor, fill_memory))
    executor = cluster_tools.get_executor("slurm", job_resources=RESOURCES)
    executor.map_to_futures(time.sleep, [600, 600])
    while not subprocess.run(("squeue", "-h", "--me"), capture_output=True, check=True).stdout:
        time.sleep(0.2)
    executor.handle_kill()
    while subprocess.run(("squeue", "-h", "--me"), capture_output=True, check=True).stdout:
        time.sleep(0.2)
    print("none left")
    sys.stdout.flush()
    os._exit(0)  # because the thread that waits for the jobs does not end with them


if __name__ == "__main__":
    main()
