"""Uses Toil as its documentation shows: a workflow of three jobs, and one that fails."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from toil.common import Toil
from toil.exceptions import FailedJobsException
from toil.job import Job


def square(_job: Any, number: int) -> int:
    """A task."""
    return number * number


def total(job: Any) -> Any:
    """A task that starts others."""
    needs = {"memory": "300M", "cores": 1, "disk": "10M"}
    squares = [job.addChildJobFn(square, number, **needs).rv() for number in (1, 2)]
    return job.addFollowOnJobFn(add, squares, **needs).rv()


def add(_job: Any, numbers: list[int]) -> int:
    """A task that needs the others."""
    return sum(numbers)


def fail(_job: Any) -> None:
    """A task with an error."""
    raise ValueError("wrong")


def start(function: Any, store: str) -> Any:
    """The result of a workflow."""
    options = Job.Runner.getDefaultOptions(f"file:{Path.cwd() / store}")
    options.batchSystem = "slurm"
    options.slurmPartition = "gpu"
    options.slurmTime = "300"
    options.retryCount = 0
    options.logLevel = "CRITICAL"
    options.disableCaching = True
    options.clean = "always"
    options.statePollingWait = 1
    with Toil(options) as toil:
        return toil.start(Job.wrapJobFn(function, memory="300M", cores=1, disk="10M"))


def main() -> None:
    """Print one line for each use."""
    logging.disable(logging.CRITICAL)
    os.environ["TOIL_SLURM_ARGS"] = "--comment=trial"
    print("sum", start(total, "first"))
    try:
        start(fail, "second")
    except FailedJobsException as error:
        print("failed", error.numberOfFailedJobs)


if __name__ == "__main__":
    main()
