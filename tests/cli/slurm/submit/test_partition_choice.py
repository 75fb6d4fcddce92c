"""A job that names several partitions waits in the one in which it is expected to start first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.slurm.submit.conftest import SlurmFace
from tests.systems import System, system
from wire.job.spec import JobSpec
from wire.names import JobState

WARNING = (
    "sbatch: warning: --partition: a job waits in one partition only; it is expected to start first in {}\n"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[System]:
    """In `one`, one job runs at a time; in `full`, each user may have one job. A job that holds both limits
    runs until the end.
    """
    with system("n1", "n2") as started:
        started.sections["queues"] = {"one": {"max_running": 1}, "full": {"max_jobs_per_user": 1}, "free": {}}
        yield started.start()


@pytest.fixture(scope="module", autouse=True)
def _limits_are_reached(cluster: System) -> None:
    with cluster.client() as client:
        jobs = [
            client.submit(JobSpec(("sleep", "1000"), queue=queue, time_limit_s=3_600.0)).ids[0]
            for queue in ("one", "full")
        ]
    cluster.await_jobs(jobs, JobState.RUNNING)


def partition(slurm: SlurmFace, job: str) -> str:
    return slurm.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%P").stdout.strip()


@pytest.mark.parametrize("named", ["one,free", "free,one", "full,free", "one,full,free,one"])
def test_earliest_start_is_chosen(slurm: SlurmFace, named: str) -> None:
    done = slurm.run("sbatch", "--parsable", "-t", "5", "-p", named, "--wrap", "true")
    assert (done.returncode, done.stderr) == (0, WARNING.format("free"))
    assert partition(slurm, done.stdout.strip()) == "free"


def test_first_partition_is_chosen_among_equal_starts(slurm: SlurmFace) -> None:
    script = slurm.script(
        "job.sh", "#!/bin/sh\n#SBATCH -p default,free\n#SBATCH -t 5\necho $SLURM_JOB_PARTITION\n"
    )
    assert slurm.output(slurm.submit(script)) == "default\n"
    over = slurm.script("own.sh", "#!/bin/sh\n#SBATCH -p default,free\n#CORRAL --queue free\ntrue\n")
    done = slurm.run("sbatch", "--parsable", over)
    assert (done.stderr, partition(slurm, done.stdout.strip())) == ("", "free")


def test_job_is_refused_if_a_partition_is_unknown_or_all_refuse_it(slurm: SlurmFace) -> None:
    unknown = slurm.run("sbatch", "-p", "free,fast", "--wrap", "true")
    assert (unknown.returncode, unknown.stderr.splitlines()) == (
        1,
        [
            "sbatch: error: invalid partition specified: fast",
            "sbatch: error: Batch job submission failed: Invalid partition name specified",
        ],
    )
    huge = slurm.run("sbatch", "-p", "free,one", "-N", "7", "--wrap", "true")
    assert huge.returncode == 1
    assert huge.stderr.endswith("Requested node configuration is not available\n")


def test_test_only_and_salloc_choose_too(slurm: SlurmFace) -> None:
    tested = slurm.run("sbatch", "--test-only", "-t", "5", "-p", "one,free", "--wrap", "true")
    assert tested.stderr.endswith(" in partition free\n")
    done = slurm.run("salloc", "-Q", "-t", "5", "-p", "one,free", "sh", "-c", "echo $SLURM_JOB_PARTITION")
    assert done.stdout == "free\n"
