"""Uses Parsl as its documentation shows: a block of two nodes by srun, tasks, the state, and a cancel."""

from __future__ import annotations

import os
import time
from typing import Any

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.launchers import SrunLauncher
from parsl.providers import SlurmProvider


@parsl.python_app
def node() -> tuple[str, str]:
    """The node and the id of the job of a worker."""
    import os
    import time

    time.sleep(1)
    return os.environ["SLURMD_NODENAME"], os.environ["SLURM_JOB_ID"]


@parsl.python_app
def fail() -> None:
    """A task with an error."""
    raise ValueError("wrong")


def main() -> None:
    """Print one line for each use."""
    provider: Any = SlurmProvider(
        partition="gpu",
        nodes_per_block=2,
        init_blocks=1,
        max_blocks=1,
        cores_per_node=2,
        mem_per_node=2,
        walltime="00:10:00",
        launcher=SrunLauncher(),
    )
    executor: Any = HighThroughputExecutor(
        label="htex", address="127.0.0.1", max_workers_per_node=2, provider=provider
    )
    with parsl.load(Config(executors=[executor], strategy="none", run_dir="runinfo")):
        # because a node may have all workers until the workers of the other one are there
        while len(executor.connected_managers()) < 2:
            time.sleep(0.2)
        found = [task.result() for task in [node() for _ in range(8)]]
        print("nodes", sorted({name for name, _ in found}))
        print("failed", isinstance(fail().exception(), ValueError))
        [job] = provider.resources
        print("one job", {job} == {job for _, job in found})
        [status] = provider.status([job])
        print("state", status.state.name)
    while provider.status([job])[0].state.name != "CANCELLED":
        time.sleep(0.2)
    print("state", provider.status([job])[0].state.name)
    os._exit(0)  # because threads of Parsl may outlive its end


if __name__ == "__main__":
    main()
