"""The verdict on invented records: on each broken guarantee, and on harmless cases that look similar."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.oracle.records import Life
from tests.oracle.verdict import Evidence, Room, judge
from wire.api.jobs import JobView
from wire.job.spec import JobSpec
from wire.names import JobState, Reason

ROOMS = {"a": Room(2_000, 1_024), "b": Room(2_000, 1_024)}
COMPLETED, FAILED, CANCELLED = JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED


def life(job: int = 1, attempt: int = 1, began: float = 10.0, last: float = 11.0, **more: Any) -> Life:
    known: dict[str, Any] = {
        "rank": 0,
        "pid": 100,
        "node": "a",
        "cpu_milli": 1_000,
        "memory_mib": 64,
        "gpus": (),
    }
    return Life(job, attempt, began=began, last=last, **{**known, "outcome": 0, **more})


def view(job: int = 1, state: JobState = COMPLETED, reason: Reason = Reason.NONE, **more: Any) -> JobView:
    known: dict[str, Any] = {"label": str(job), "name": "x", "user": "ada", "project": "p", "queue": "q"}
    known |= {"detail": "", "priority": 50, "gpus": 0, "nodes": 1, "cpu_milli": 1_000, "memory_mib": 64}
    known |= {"attempt": 1, "submitted_at": 0.0, "exit_code": 0}
    return JobView(id=job, state=state, reason=reason, **{**known, **more})


def evidence(*lives: Life, jobs: tuple[JobView, ...] = (view(),), gpus: float = 0) -> Evidence:
    spec = JobSpec(command=("x",), gpus=gpus)
    return Evidence([(job.id, spec) for job in jobs], {job.id: job for job in jobs}, [*lives], ROOMS)


def promises(given: Evidence) -> list[str]:
    return [broken.promise for broken in judge(given)]


failed = view(state=FAILED, reason=Reason.EXIT_NONZERO, exit_code=3)
killed = view(state=FAILED, reason=Reason.SIGNAL, exit_code=None, signal=9)
lost = view(state=FAILED, reason=Reason.SUPERVISOR_LOST, exit_code=None)
cancelled = view(state=CANCELLED, reason=Reason.USER, exit_code=None, signal=15)
again = view(attempt=2)
failed_again = replace(failed, attempt=2)


@pytest.mark.parametrize(
    "given",
    [
        evidence(life()),
        evidence(life(outcome=3), jobs=(failed,)),
        evidence(life(outcome=-9), jobs=(killed,)),
        evidence(life(outcome=None), jobs=(lost,)),
        evidence(life(outcome=0), jobs=(lost,)),
        evidence(life(outcome=None), jobs=(cancelled,)),
        evidence(jobs=(view(state=CANCELLED, reason=Reason.USER, exit_code=None, attempt=0),)),
        evidence(life(outcome=None, last=11), life(attempt=2, began=11, last=12), jobs=(again,)),
        evidence(life(rank=0), life(rank=1, node="b"), jobs=(view(nodes=2),)),
        evidence(life(1, gpus=("g",)), life(2, began=11, last=12, gpus=("g",)), jobs=(view(1), view(2))),
        evidence(life(1, gpus=("g",)), life(2, gpus=("g",)), jobs=(view(1), view(2)), gpus=0.5),
    ],
)
def test_correct_outcome_is_accepted(given: Evidence) -> None:
    assert judge(given) == []


@pytest.mark.parametrize(
    ("promise", "given"),
    [
        ("A", replace(evidence(), jobs={})),
        ("A", evidence(jobs=(view(state=JobState.QUEUED),))),
        ("A", evidence(life(), jobs=(view(state=JobState.RUNNING),))),
        ("A", replace(evidence(life()), acknowledged=evidence().acknowledged * 2)),
        ("B", evidence(life(), life(pid=101, node="b", began=20, last=21))),
        ("B", evidence(life(outcome=None), life(attempt=2, began=10.9, last=12), jobs=(again,))),
        ("C", evidence(life(), life(attempt=2, began=12, outcome=3), jobs=(failed_again,))),
        ("C", evidence(life(attempt=2, outcome=3), life(began=12, last=13, outcome=1), jobs=(failed_again,))),
        ("C", evidence(life(outcome=None), life(attempt=2, began=12, last=13), jobs=(lost,))),
        ("D", evidence()),
        ("D", evidence(life(outcome=None))),
        ("D", evidence(life(outcome=3))),
        ("D", evidence(life(outcome=0), jobs=(failed,))),
        ("D", evidence(life(outcome=3), jobs=(killed,))),
        ("D", evidence(life(outcome=4), jobs=(replace(cancelled, exit_code=3),))),
        ("D", evidence(life(), jobs=(replace(failed, reason=Reason.LAUNCH_FAILED, exit_code=None),))),
        ("D", evidence(life(), jobs=(replace(failed, reason=Reason.NODE_LOST, exit_code=None),))),
        ("D", evidence(life(), jobs=(view(nodes=2),))),
        ("E", evidence(life(1, gpus=("g",)), life(2, began=10.9, gpus=("g",)), jobs=(view(1), view(2)))),
        ("E", evidence(life(1, gpus=("g",)), life(2, gpus=("g",)), jobs=(view(1), view(2)), gpus=0.6)),
        ("E", evidence(life(1), life(2), life(3), jobs=(view(1), view(2), view(3)))),
        ("E", evidence(life(memory_mib=2_048))),
        ("F", replace(evidence(life()), left=["a process"])),
        ("G", replace(evidence(life()), journal=["a gap"])),
    ],
)
def test_each_broken_guarantee_is_detected(promise: str, given: Evidence) -> None:
    assert set(promises(given)) == {promise}
