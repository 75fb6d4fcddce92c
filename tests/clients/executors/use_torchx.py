"""Uses TorchX as its documentation shows: a job, its state, the list of jobs, its output, and a cancel."""

from __future__ import annotations

import time
from typing import Any

from torchx.runner import get_runner
from torchx.specs import AppDef, Resource, Role


def app(*words: str) -> AppDef:
    """A program with one role."""
    role = Role("trial", image="", entrypoint=words[0], args=[*words[1:]])
    role.resource = Resource(cpu=1, gpu=0, memMB=500)
    return AppDef("trial", roles=[role])


def main() -> None:
    """Print one line for each use."""
    options: Any = {"partition": "gpu", "time": "5", "comment": "a trial"}
    with get_runner("trial") as runner:
        good = runner.run(app("echo", "hello"), scheduler="slurm", cfg=options)
        bad = runner.run(app("false"), scheduler="slurm", cfg=options)
        print("states", [runner.wait(each, wait_interval=0.2).state.name for each in (good, bad)])
        job = good.rpartition("/")[2]
        print("listed", job in {each.app_id for each in runner._scheduler("slurm").list()})
        from torchx.schedulers.api import Stream

        print("output", [line.strip() for line in runner.log_lines(good, "trial", 0, streams=Stream.STDOUT)])
        long = runner.run(app("sleep", "600"), scheduler="slurm", cfg=options)
        while runner.status(long).state.name != "RUNNING":
            time.sleep(0.2)
        runner.cancel(long)
        print("cancelled")


if __name__ == "__main__":
    main()
