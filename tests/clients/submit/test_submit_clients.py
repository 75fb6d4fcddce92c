"""Programs written for Slurm that submit jobs, unmodified. CORRAL_CLIENTS names the Python that has them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.slurm.submit.conftest import SlurmFace
from wire.names import JobState

PYTHON = os.environ.get("CORRAL_CLIENTS", sys.executable)
SCRIPTS = Path(__file__).parent


def run(slurm: SlurmFace, script: str, *modules: str) -> str:
    """The output of a script, or a skip if one of the modules that it uses is missing."""
    for module in modules:
        if subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True, check=False).returncode:
            pytest.skip(f"{module} is not installed; see tests/clients/requirements.txt and CORRAL_CLIENTS")
    done = slurm.run(PYTHON, str(SCRIPTS / f"{script}.py"))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_submitit(slurm: SlurmFace) -> None:
    assert run(slurm, "use_submitit", "submitit").splitlines() == [
        "one 3",
        "array [0, 2, 4]",
        "failed True",
        "tasks [(0, 4, 2), (1, 4, 2), (2, 4, 2), (3, 4, 2)]",
        "cancelled True",
    ]


def test_dask_jobqueue(slurm: SlurmFace) -> None:
    assert run(slurm, "use_dask_jobqueue", "dask_jobqueue").splitlines() == ["sum 285", "workers 1"]
    jobs = [job for job in slurm.cluster.jobs().values() if job.name == "dask-worker"]
    ended = slurm.cluster.await_jobs([job.id for job in jobs])
    assert len(ended) == 2


def test_simple_slurm_and_slurmpy(slurm: SlurmFace) -> None:
    said = run(slurm, "use_simple_slurm", "simple_slurm", "slurmpy")
    first, after, code, retried = map(int, said.split())
    ended = slurm.cluster.await_jobs([first, after, retried])
    assert (code, ended[after].state) == (0, JobState.COMPLETED)
    assert ended[retried].state is JobState.FAILED
    for index in (0, 1):
        slurm.cluster.until((slurm.place / f"s_{first}_{index}.out").exists, "the output of the array")
