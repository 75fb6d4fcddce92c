"""Uses slurminade as its documentation shows: tasks, a bundle of tasks, srun, and waiting for all of them."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import slurminade

slurminade.update_default_configuration(partition="gpu", time="5", mem="500M", output="slurminade-%j.out")


@slurminade.slurmify()
def write(name: str) -> None:
    """A task."""
    Path(name).write_text("written")


@slurminade.slurmify()
def collect() -> None:
    """A task that waits for the others."""
    Path("all").write_text(str(len(list(Path().glob("part*")))))


def main() -> None:
    """Print one line for each use."""
    logging.disable(logging.CRITICAL)
    slurminade.set_dispatcher(slurminade.SlurmDispatcher())
    first = write.distribute("first")
    with slurminade.JobBundling(max_size=2) as bundle:
        for number in range(4):
            write.wait_for(first).distribute(f"part{number}")
        jobs = bundle.flush()
    print("jobs", len(jobs))
    slurminade.join()
    done = collect.distribute_and_wait()
    print("parts", Path("all").read_text(), "code", done.get_exit_code())
    sys.stdout.flush()


if __name__ == "__main__":
    main()
