"""Uses hpc-connect as its documentation shows: the nodes, jobs with their exit codes, GPUs, and srun."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import hpc_connect

OPTIONS = ["--partition=gpu", "--mem=300M"]


def wait(process: Any) -> int:
    """The exit code of a job."""
    while process.poll() is None:
        time.sleep(0.2)
    return int(process.returncode)


def main() -> None:
    """Print one line for each use."""
    logging.disable(logging.CRITICAL)
    backend: Any = hpc_connect.get_backend("slurm")
    kinds = ("node", "cpu", "gpu")
    print("nodes", backend.node_count, [backend.count_per_node(kind) for kind in kinds[1:]])
    adapter = backend.submission_manager().adapter

    def submit(name: str, command: str, **more: Any) -> Any:
        spec = hpc_connect.JobSpec(
            name,
            [command],
            nodes=1,
            workspace=Path(name).absolute(),
            time_limit=120.0,
            submit_args=OPTIONS,
            output=f"{name}.txt",
            **more,
        )
        return adapter.submit(spec)

    good = submit("good", "echo $SLURM_GPUS_ON_NODE", gpus=1)
    bad = submit("bad", "exit 3", gpus=0, dependencies=[good.jobid])
    print("codes", wait(good), wait(bad), "GPUs", Path("good.txt").read_text().strip())
    long = submit("long", "sleep 600", gpus=0)
    long.cancel()
    print("cancelled", long.returncode)
    words = ["-n", "2", "--partition=gpu", "--mem=200", "--time=2", "true"]
    print("srun", backend.launch(words).returncode)


if __name__ == "__main__":
    main()
