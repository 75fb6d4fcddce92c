"""Uses dask-jobqueue as its documentation shows: two workers as jobs, a computation, fewer workers, close."""

from __future__ import annotations

import sys
import time

from dask.distributed import Client
from dask_jobqueue import SLURMCluster


def square(number: int) -> int:
    """A task."""
    return number * number


def main() -> None:
    """Print one line for each use."""
    cluster = SLURMCluster(
        queue="gpu", cores=1, memory="500MB", walltime="00:05:00", interface="lo", python=sys.executable
    )
    cluster.scale(jobs=2)
    client = Client(cluster)
    client.wait_for_workers(2, timeout=90)
    print("sum", sum(client.gather(client.map(square, range(10)))))
    cluster.scale(jobs=1)
    while len(client.scheduler_info()["workers"]) != 1:
        time.sleep(0.2)
    print("workers 1")
    client.close()
    cluster.close()


if __name__ == "__main__":
    main()
