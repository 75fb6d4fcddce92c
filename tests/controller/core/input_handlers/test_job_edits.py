"""Edits of a job after its submit, and which of them come too late."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.model.decision.decision import Accepted
from controller.core.model.inputs import job_inputs
from tests.engine_harness import EngineHarness, spec
from wire.job.start_conditions import Dependency, Until
from wire.names import JobState, Reason

T0 = 1_000.0


@pytest.fixture
def harness() -> EngineHarness:
    harness = EngineHarness()
    harness.join("a")
    return harness


def edit(harness: EngineHarness, job: int, **changes: Any) -> None:
    reply = harness.tell(job_inputs.Edit(job, "bob", changes)).reply
    assert isinstance(reply, Accepted), reply


def after(*jobs: int | str) -> tuple[Dependency, ...]:
    return tuple(Dependency(Until.OK, str(job)) for job in jobs)


def in_json(*jobs: int | str) -> list[dict[str, str]]:
    return [{"until": "ok", "job": str(job)} for job in jobs]


def started(harness: EngineHarness) -> list[int]:
    return [start.job for start in harness.tick()]


def test_a_job_moves_to_the_place_of_its_new_priority(harness: EngineHarness) -> None:
    first, second = harness.submit(spec(8)), harness.submit(spec(8))
    edit(harness, second, priority=75)
    assert started(harness) == [second]
    assert harness.job(first).state is JobState.QUEUED


def test_a_job_that_asks_for_less_starts(harness: EngineHarness) -> None:
    harness.submit(spec(6))
    job = harness.submit(spec(4))
    assert len(harness.tick()) == 1
    edit(harness, job, gpus=2)
    assert started(harness) == [job]
    assert len(harness.gpus_of(job)) == 2


def test_edit_of_the_first_waiting_job_renews_its_reservation(harness: EngineHarness) -> None:
    """The job keeps its queue position."""
    harness.submit(spec(6, time_limit_s=100))
    head = harness.submit(spec(8, time_limit_s=50))
    harness.tick()
    edit(harness, head, gpus=1, time_limit_s=1_000)
    assert started(harness) == [head]


def test_edit_changes_begin_time_deadline_and_start_within(harness: EngineHarness) -> None:
    job = harness.submit(spec(1, begin_at=T0 + 100, deadline_at=T0 + 200))
    edit(harness, job, begin_at=T0 + 300, deadline_at=None)
    assert harness.tick_at(T0 + 299) == []
    assert [start.job for start in harness.tick_at(T0 + 300)] == [job]


def test_a_gate_opens_with_the_change(harness: EngineHarness) -> None:
    job = harness.submit(spec(1, begin_at=T0 + 100))
    edit(harness, job, begin_at=None)
    assert started(harness) == [job]


def test_edit_adds_and_removes_dependencies(harness: EngineHarness) -> None:
    first, second = harness.submit(spec(1, hold=True)), harness.submit(spec(1))
    edit(harness, second, after=in_json(first))
    assert started(harness) == []
    edit(harness, second, after=None)
    assert started(harness) == [second]


def test_met_dependencies_stay_met_after_an_edit(harness: EngineHarness) -> None:
    """An edit of another field does not check a met dependency again, although its job is forgotten."""
    first, held = harness.submit(spec(1)), harness.submit(spec(1, hold=True))
    job = harness.submit(spec(1, after=after(first, held)))
    harness.tick()
    harness.start(first)
    harness.exit(first)
    harness.state.keep_ended = 0
    harness.state.forget_old()
    edit(harness, job, name="new")
    edit(harness, job, after=in_json(first))
    assert started(harness) == [job]


def test_edit_that_makes_a_dependency_cycle_is_refused(harness: EngineHarness) -> None:
    first = harness.submit(spec(1, hold=True))
    array = harness.submit(spec(1, array="0-1", after=after(first)))
    last = harness.submit(spec(1, after=after(array)))
    refusal = harness.refuse(job_inputs.Edit(first, "ada", {"after": in_json(last)}))
    assert refusal.where == "after"
    assert refusal.message == f"the jobs would wait for each other: {first} → {last} → {array} → {first}"
    itself = harness.refuse(job_inputs.Edit(first, "ada", {"after": in_json(first)}))
    assert itself.message == f"the jobs would wait for each other: {first} → {first}"


def test_running_job_can_be_renamed(harness: EngineHarness) -> None:
    job = harness.submit(spec(1))
    harness.tick()
    harness.start(job)
    edit(harness, job, name="better", priority=80, deadline_at=T0 + 50)
    assert harness.job(job).name == "better"
    harness.tick_at(T0 + 50)
    assert harness.stops() == [("a", job)]


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"gpus": 2}, "conflict", "gpus cannot be changed now: job 1 is SCHEDULED"),
        ({"array": "0-3"}, "invalid", "array cannot be changed"),
        ({"hold": True}, "invalid", "hold cannot be changed"),
        ({"prioritty": 3}, "invalid", "unknown field"),
        ({"priority": "high"}, "invalid", "expected int, got str"),
        ({"priority": 101}, "invalid", "must lie between 0 and 100"),
        ({"deadline_at": T0 - 5}, "invalid", "has passed 5s ago"),
    ],
)
def test_impossible_edit_is_refused_and_changes_nothing(
    harness: EngineHarness, changes: dict[str, Any], code: str, message: str
) -> None:
    job = harness.submit(spec(1))
    harness.tick()
    refusal = harness.refuse(job_inputs.Edit(job, "ada", changes))
    assert refusal.code == code
    assert refusal.message.startswith(message)


def test_edit_to_a_size_that_fits_no_node_is_refused(harness: EngineHarness) -> None:
    job = harness.submit(spec(1))
    assert harness.refuse(job_inputs.Edit(job, "ada", {"gpus": 16})).code == "never_fits"


def test_edit_of_an_ended_job_is_refused(harness: EngineHarness) -> None:
    job = harness.submit(spec(1))
    harness.tell(job_inputs.Cancel(job, "ada"))
    assert harness.refuse(job_inputs.Edit(job, "ada", {"priority": 1})).code == "conflict"


def test_edit_to_the_same_value_makes_no_event(harness: EngineHarness) -> None:
    job = harness.submit(spec(1, begin_at=T0 + 60))
    before = len(harness.events)
    edit(harness, job, priority=50, gpus=1)
    assert len(harness.events) == before
    assert harness.why(job).reason is Reason.BEGIN
