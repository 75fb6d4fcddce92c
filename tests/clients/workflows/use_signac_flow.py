"""Uses signac-flow as its documentation shows: operations as jobs, and their states by the names of jobs."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import flow
import signac


class Project(flow.FlowProject):
    """One operation on each job of signac."""


@Project.post.isfile("square.txt")
@Project.operation(directives={"memory": "500M", "walltime": 0.1})
def square(job: Any) -> None:
    """An operation."""
    Path(job.fn("square.txt")).write_text(str(job.sp.a**2))


def run(*words: str) -> str:
    """The output of a command."""
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def project(*words: str) -> str:
    """The output of a command of the project."""
    return run(sys.executable, __file__, *words)


def main() -> None:
    """Print one line for each use."""
    jobs = [signac.init_project().open_job({"a": number}).init() for number in (1, 2, 3)]
    submit = ("submit", "--hold")
    project(*submit)
    project(*submit)
    queued = run("squeue", "--me", "-h", "-t", "PD", "-o", "%i").split()
    print("submitted once", len(queued))
    rows = [line for line in project("status", "--detailed").splitlines() if "[Q]" in line]
    print("queued", sum(any(job.id in row for job in jobs) for row in rows))
    run("scontrol", "release", *queued)
    while not all(job.isfile("square.txt") for job in jobs):
        time.sleep(0.2)
    print("squares", sorted(Path(job.fn("square.txt")).read_text() for job in jobs))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Project().main()
    else:
        main()
