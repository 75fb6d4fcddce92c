"""Programs written for Slurm that submit jobs, unmodified. CORRAL_CLIENTS names the Python that has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.slurm.submit.conftest import SlurmFace
from tests.clients.scripts import run
from wire.names import JobState

SCRIPTS = Path(__file__).parent


def test_submitit(slurm: SlurmFace) -> None:
    assert run(slurm, SCRIPTS / "use_submitit.py", ("submitit",)).splitlines() == [
        "one 3",
        "array [0, 2, 4]",
        "failed True",
        "tasks [(0, 4, 2), (1, 4, 2), (2, 4, 2), (3, 4, 2)]",
        "cancelled True",
    ]


def test_dask_jobqueue(slurm: SlurmFace) -> None:
    assert run(slurm, SCRIPTS / "use_dask_jobqueue.py", ("dask_jobqueue",)).splitlines() == [
        "sum 285",
        "workers 1",
    ]
    jobs = [job for job in slurm.cluster.jobs().values() if job.name == "dask-worker"]
    ended = slurm.cluster.await_jobs([job.id for job in jobs])
    assert len(ended) == 2


def test_simple_slurm_and_slurmpy(slurm: SlurmFace) -> None:
    said = run(slurm, SCRIPTS / "use_simple_slurm.py", ("simple_slurm", "slurmpy"))
    first, after, code, retried = map(int, said.split())
    ended = slurm.cluster.await_jobs([first, after, retried])
    assert (code, ended[after].state) == (0, JobState.COMPLETED)
    assert ended[retried].state is JobState.FAILED
    for index in (0, 1):
        slurm.cluster.until((slurm.place / f"s_{first}_{index}.out").exists, "the output of the array")


PRINTED = {
    "psij": [
        "states ['COMPLETED', 'QUEUED'] gpu",
        "ranks COMPLETED ['0', '1', '2', '3']",
        "failed FAILED 7",
        "listed True",
        "attached ACTIVE",
        "cancelled CANCELED",
    ],
    "qtoolkit": [
        "submitted SUCCESSFUL",
        "job flow gpu 1 2 120",
        "sub-state RUNNING",
        "listed [True]",
        "by id ['RUNNING']",
        "cancelled SUCCESSFUL",
        "refused FAILED True",
    ],
    "stui": [
        "ready connection established",
        "cluster corral True",
        "job seen gpu True False 1",
        "array [True] 2-3%2",
        "cancelled",
    ],
    "clusterscope": [
        "cluster corral (22, 5, 8)",
        "cpus [64]",
        "memory [524288]",
        "task 16 2",
        "rank 0 0 4 ranked True",
        "rank 1 1 4 ranked True",
        "rank 2 0 4 ranked True",
        "rank 3 1 4 ranked True",
    ],
}
"""For each client, the lines that its script prints."""


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_client(slurm: SlurmFace, name: str) -> None:
    assert run(slurm, SCRIPTS / f"use_{name}.py", (name,)).splitlines() == PRINTED[name]
