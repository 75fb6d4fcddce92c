"""The text of qstat and pbsnodes, recorded from Slurm's wrappers and written after OpenPBS's documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.engines.batch_systems.batch_job import Cause, Phase, Unreadable
from controller.engines.batch_systems.pbs.text_output import (
    exit_status,
    parse_pbsnodes,
    parse_qstat,
    size_mib,
)

GOLDEN = Path(__file__).parents[4] / "golden" / "engines" / "batch_systems"


def test_jobs_of_openpbs() -> None:
    jobs = {each.id: each for each in parse_qstat((GOLDEN / "openpbs-qstat.txt").read_text())}
    assert {name: (each.phase, each.cause, each.code, each.signal) for name, each in jobs.items()} == {
        "1201.pbs01": (Phase.ENDED, Cause.EXIT, 3, None),
        "1202.pbs01": (Phase.WAITING, Cause.EXIT, None, None),
        "1203.pbs01": (Phase.HELD, Cause.EXIT, None, None),
        "1204.pbs01": (Phase.ENDED, Cause.TIME_LIMIT, None, None),
        "1205.pbs01": (Phase.ENDED, Cause.EXIT, None, 15),
        "1206[].pbs01": (Phase.RUNNING, Cause.EXIT, None, None),
        "1206[3].pbs01": (Phase.RUNNING, Cause.EXIT, None, None),
    }
    assert jobs["1202.pbs01"].reason.endswith("ngpus (R: 4 A: 1 T:8)")
    assert jobs["1203.pbs01"].reason == "held by an operator"
    assert (jobs["1201.pbs01"].tag, jobs["1201.pbs01"].node) == ("corral-0f3a9c112233-7-1-0", "gpu01")


def test_jobs_of_the_wrappers() -> None:
    jobs = {each.tag: each for each in parse_qstat((GOLDEN / "torque-wrapper-qstat.txt").read_text())}
    assert {name: each.phase for name, each in jobs.items()} == {
        "corral-pre-1": Phase.ENDED,
        "corral-pre-2": Phase.RUNNING,
        "held": Phase.WAITING,  # because the wrapper shows no holds
        "odd|name": Phase.WAITING,
        "urgent": Phase.ENDED,
    }
    assert jobs["corral-pre-2"].node == "n2"


@pytest.mark.parametrize("text", ["    job_state = Q\n???\n", "Job Id: 7\n    job_state = Q\ngarbage\n"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(Unreadable, match="expected an attribute"):
        parse_qstat(text)


def test_a_job_without_a_state_is_refused() -> None:
    with pytest.raises(Unreadable, match="no state of the job 7"):
        parse_qstat("Job Id: 7\n    Job_Name = x\n")


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (0, (Cause.EXIT, 0, None)),
        (7, (Cause.EXIT, 7, None)),
        (137, (Cause.EXIT, None, 9)),
        (265, (Cause.EXIT, None, 9)),
        (-29, (Cause.TIME_LIMIT, None, None)),
        (-27, (Cause.OUT_OF_MEMORY, None, None)),
        (-2, (Cause.LAUNCH_FAILED, None, None)),
        (None, (Cause.EXIT, None, None)),
    ],
)
def test_exit_statuses(status: int | None, outcome: tuple[Cause, int | None, int | None]) -> None:
    assert exit_status(status) == outcome


def test_nodes_of_openpbs() -> None:
    first, second = parse_pbsnodes((GOLDEN / "openpbs-pbsnodes.txt").read_text())
    assert (first.name, first.cpus, first.gpus, first.gpu_model, first.cpus_used) == (
        "gpu01",
        32,
        4,
        "a100",
        4,
    )
    assert (first.memory_mib, first.partitions, first.why) == (257_787, ("gpuq",), "")
    assert (second.memory_mib, second.why) == (65_536, "offline: fan is broken")


def test_nodes_of_the_wrappers() -> None:
    first, second = parse_pbsnodes((GOLDEN / "torque-wrapper-pbsnodes.txt").read_text())
    assert (first.name, first.cpus, first.memory_mib, first.gpus) == ("n1", 16, 100_000, 4)
    assert (first.why, second.name) == ("", "n2")


@pytest.mark.parametrize(("text", "mib"), [("100mb", 100), ("1gb", 1_024), ("2048kb", 2), ("1mw", 8)])
def test_sizes(text: str, mib: int) -> None:
    assert size_mib(text) == mib
