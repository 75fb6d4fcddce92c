"""A running cluster with jobs in many states, and Slurm's commands as functions."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from cli.slurm.programs import run
from tests.systems import System, system
from wire.job.spec import JobSpec
from wire.job.start_conditions import Dependency, Until
from wire.names import JobState

SIMULATED = {"gpus": "simulated:4xA100", "cpus": 16, "memory": "100000M", "run_as_self": True}


class Printed(NamedTuple):
    """What a command printed, and its exit code."""

    out: str
    err: str
    code: int


Slurm = Callable[..., Printed]


@pytest.fixture(scope="module")
def cluster() -> Iterator[System]:
    """Two nodes with four A100 each. Jobs 1 to 13 are running, waiting or ended; see `_submit`."""
    with system("n1", "n2") as found:
        found.sections["nodes"] = {name: dict(SIMULATED) for name in ("n1", "n2")}
        found.sections["cluster"] = {"name": "emu"}
        found.sections["queues"] = {"gpu": {}}
        found.start()
        _submit(found)
        yield found


def _submit(found: System) -> None:
    more = {"queue": "gpu", "cpu_milli": 1_000, "memory_mib": 100, "time_limit_s": 600.0, "workdir": "/tmp"}

    def spec(name: str, *command: str, **values: object) -> JobSpec:
        return JobSpec(command or ("sleep", "600"), name=name, **{**more, **values})  # type: ignore[arg-type]

    with found.client() as client:
        ended = [
            *client.submit(spec("good", "true", comment="a note")).ids,
            *client.submit(spec("bad", "sh", "-c", "exit 3")).ids,
            *client.submit(spec("killed")).ids,
        ]
        found.await_jobs([ended[2]], JobState.RUNNING)
        client.cancel(ended[2])
        found.await_jobs(ended, JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED)
        runs = client.submit(
            spec(
                "alpha",
                gpus=2,
                gpu_models=("A100",),
                cpu_milli=2_000,
                memory_mib=500,
                output="slurm-%j.out",
                batch=True,
            )
        ).ids
        array = client.submit(spec("arr", array="1-6%2", memory_mib=1_536, time_limit_s=93_784.0)).ids
        found.await_jobs([*runs, *array[:2]], JobState.RUNNING)
        client.submit(spec("big", gpus=8, nodes=2))
        client.submit(spec("held", hold=True))
        client.submit(spec("dep", after=(Dependency(Until.OK, str(runs[0])),)))
        found.until(lambda: client.job(11).job.reason.value == "resources", "a reason of job 11")


@pytest.fixture
def slurm(
    cluster: System, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Slurm]:
    """Run a command of Slurm: the program and its words."""
    for name in ("SQUEUE_FORMAT", "SACCT_FORMAT", "SINFO_FORMAT", "SLURM_TIME_FORMAT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CORRAL_URL", f"unix://{cluster.socket}")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()

    def call(program: str, *words: str) -> Printed:
        capfd.readouterr()
        code = run(program, words)
        return Printed(*capfd.readouterr(), code)

    yield call
    monkeypatch.undo()
    time.tzset()


def masked(text: str) -> str:
    """Return the text with fixed times and durations, so that runs can be compared."""
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"(?<![\d-])0:\d\d\b(?!:)", "0:SS", text)
    return re.sub(r"(?<![\d-])00:00:\d\d\b", "00:00:SS", text)
