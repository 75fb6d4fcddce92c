"""Programs that read the output of Slurm's commands, unmodified: reportseff and slurm_gpustat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.clients import ClientPlace, client_place, needs
from wire.job.spec import JobSpec
from wire.names import JobState


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ClientPlace]:
    """A cluster with an ended job, and a running job with two GPUs."""
    with client_place(tmp_path) as found:
        with found.cluster.client() as api:
            ended = api.submit(JobSpec(("true",), queue="gpu", time_limit_s=60.0)).ids
            running = api.submit(JobSpec(("sleep", "600"), queue="gpu", gpus=2)).ids
        found.cluster.await_jobs(ended, JobState.COMPLETED)
        found.cluster.await_jobs(running, JobState.RUNNING)
        yield found


@needs("reportseff")
def test_reportseff(client: ClientPlace) -> None:
    done = client.run("reportseff", "--no-color", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[6:8] == ["1", "COMPLETED"]


@needs("slurm_gpustat")
def test_slurm_gpustat(client: ClientPlace) -> None:
    done = client.run("slurm_gpustat")
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert words[words.index("a100") :][:4] == ["a100", "8", "8", "6"]
    assert done.stdout.rstrip().endswith("a100: 2")
