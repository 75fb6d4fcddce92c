"""Uses ipyparallel as its documentation shows: engines in a batch job, tasks on all of them, and the end."""

from __future__ import annotations

from typing import Any

import ipyparallel
from traitlets.config import Config


def place() -> str | None:
    """The id of the job of an engine."""
    import os

    return os.environ.get("SLURM_JOB_ID")


def main() -> None:
    """Print one line for each use."""
    config: Any = Config()
    config.SlurmLauncher.queue = "gpu"
    config.SlurmLauncher.timelimit = "5"
    cluster: Any = ipyparallel.Cluster(
        engines="slurm", n=3, controller_ip="127.0.0.1", engine_timeout=120, config=config, log_level=40
    )
    with cluster as client:
        view = client[:]
        print("squares", list(view.map_sync(lambda number: number * number, range(6))))
        jobs = set(view.apply_sync(place))
        print("engines", len(client.ids), "jobs", len(jobs), None not in jobs)


if __name__ == "__main__":
    main()
