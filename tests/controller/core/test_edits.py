"""What a job asks for can change after its submit, as far as that is not too late."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core import inputs
from controller.core.inputs import Accepted
from tests.worlds import World, spec
from wire.conditions import Dependency, Until
from wire.words import JobState, Reason

T0 = 1_000.0


@pytest.fixture
def world() -> World:
    world = World()
    world.join("a")
    return world


def edit(world: World, job: int, **changes: Any) -> None:
    reply = world.tell(inputs.Edit(job, "bob", changes)).reply
    assert isinstance(reply, Accepted), reply


def after(*jobs: int | str) -> tuple[Dependency, ...]:
    return tuple(Dependency(Until.OK, str(job)) for job in jobs)


def in_json(*jobs: int | str) -> list[dict[str, str]]:
    return [{"until": "ok", "job": str(job)} for job in jobs]


def started(world: World) -> list[int]:
    return [start.job for start in world.tick()]


def test_a_job_moves_to_the_place_of_its_new_priority(world: World) -> None:
    first, second = world.submit(spec(8)), world.submit(spec(8))
    edit(world, second, priority=75)
    assert started(world) == [second]
    assert world.job(first).state is JobState.QUEUED


def test_a_job_that_asks_for_less_starts(world: World) -> None:
    world.submit(spec(6))
    job = world.submit(spec(4))
    assert len(world.tick()) == 1
    edit(world, job, gpus=2)
    assert started(world) == [job]
    assert len(world.gpus_of(job)) == 2


def test_the_first_waiting_job_may_ask_for_something_else(world: World) -> None:
    """It keeps its place, and what was promised to it is promised anew."""
    world.submit(spec(6, time_limit_s=100))
    head = world.submit(spec(8, time_limit_s=50))
    world.tick()
    edit(world, head, gpus=1, time_limit_s=1_000)
    assert started(world) == [head]


def test_begin_deadline_and_patience_move(world: World) -> None:
    job = world.submit(spec(1, begin_at=T0 + 100, deadline_at=T0 + 200))
    edit(world, job, begin_at=T0 + 300, deadline_at=None)
    assert world.tick_at(T0 + 299) == []
    assert [start.job for start in world.tick_at(T0 + 300)] == [job]


def test_a_gate_opens_with_the_change(world: World) -> None:
    job = world.submit(spec(1, begin_at=T0 + 100))
    edit(world, job, begin_at=None)
    assert started(world) == [job]


def test_dependencies_come_and_go(world: World) -> None:
    first, second = world.submit(spec(1, hold=True)), world.submit(spec(1))
    edit(world, second, after=in_json(first))
    assert started(world) == []
    edit(world, second, after=None)
    assert started(world) == [second]


def test_what_has_happened_already_stays_so(world: World) -> None:
    """A change of something else does not ask again, though the other job is forgotten."""
    first, held = world.submit(spec(1)), world.submit(spec(1, hold=True))
    job = world.submit(spec(1, after=after(first, held)))
    world.tick()
    world.start(first)
    world.exit(first)
    world.state.keep_ended = 0
    world.state.forget_old()
    edit(world, job, name="new")
    edit(world, job, after=in_json(first))
    assert started(world) == [job]


def test_jobs_cannot_wait_for_each_other(world: World) -> None:
    first = world.submit(spec(1, hold=True))
    array = world.submit(spec(1, array="0-1", after=after(first)))
    last = world.submit(spec(1, after=after(array)))
    refusal = world.refuse(inputs.Edit(first, "ada", {"after": in_json(last)}))
    assert refusal.where == "after"
    assert refusal.message == f"the jobs would wait for each other: {first} → {last} → {array} → {first}"
    itself = world.refuse(inputs.Edit(first, "ada", {"after": in_json(first)}))
    assert itself.message == f"the jobs would wait for each other: {first} → {first}"


def test_a_running_job_may_be_called_something_else(world: World) -> None:
    job = world.submit(spec(1))
    world.tick()
    world.start(job)
    edit(world, job, name="better", priority=80, deadline_at=T0 + 50)
    assert world.job(job).name == "better"
    world.tick_at(T0 + 50)
    assert world.stops() == [("a", job)]


@pytest.mark.parametrize(
    ("changes", "code", "told"),
    [
        ({"gpus": 2}, "conflict", "gpus cannot change any more: job 1 is SCHEDULED"),
        ({"array": "0-3"}, "invalid", "array cannot be changed"),
        ({"hold": True}, "invalid", "hold cannot be changed"),
        ({"prioritty": 3}, "invalid", "unknown field"),
        ({"priority": "high"}, "invalid", "expected int, got str"),
        ({"priority": 101}, "invalid", "must lie between 0 and 100"),
        ({"deadline_at": T0 - 5}, "invalid", "has passed 5s ago"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    world: World, changes: dict[str, Any], code: str, told: str
) -> None:
    job = world.submit(spec(1))
    world.tick()
    refusal = world.refuse(inputs.Edit(job, "ada", changes))
    assert refusal.code == code
    assert refusal.message.startswith(told)


def test_what_no_node_could_ever_hold_is_refused_as_in_a_submit(world: World) -> None:
    job = world.submit(spec(1))
    assert world.refuse(inputs.Edit(job, "ada", {"gpus": 16})).code == "never_fits"


def test_an_ended_job_stays_what_it_was(world: World) -> None:
    job = world.submit(spec(1))
    world.tell(inputs.Cancel(job, "ada"))
    assert world.refuse(inputs.Edit(job, "ada", {"priority": 1})).code == "conflict"


def test_the_same_again_is_no_event(world: World) -> None:
    job = world.submit(spec(1, begin_at=T0 + 60))
    before = len(world.events)
    edit(world, job, priority=50, gpus=1)
    assert len(world.events) == before
    assert world.why(job).reason is Reason.BEGIN
