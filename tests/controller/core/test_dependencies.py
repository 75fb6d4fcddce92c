"""Jobs that wait for others: who starts after whom, and what becomes of those who wait in vain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core import inputs
from controller.core.events import DependencyDecided, GateOpened, JobEnded
from controller.core.forecast import forecast, fork
from controller.core.gates import WaitRules
from tests.worlds import PIPELINE, World, spec
from wire.conditions import Dependency, Restart, RestartWhen, Until
from wire.frames import AttemptStatus, Checkpoint
from wire.words import JobState, Reason

T0 = 1_000.0
STARTED, OK, NOT_OK, ENDED = Until.STARTED, Until.OK, Until.NOT_OK, Until.ENDED


@pytest.fixture
def world() -> World:
    world = World()
    world.join("a")
    return world


def after(until: Until, *jobs: int | str) -> tuple[Dependency, ...]:
    return tuple(Dependency(until, str(job)) for job in jobs)


def run(world: World, job: int, **how: object) -> None:
    world.tick()
    world.start(job)
    world.exit(job, **how)  # type: ignore[arg-type]


def started(world: World) -> list[int]:
    return [start.job for start in world.tick()]


@pytest.mark.parametrize(
    ("until", "at_start", "after_success", "after_failure"),
    [
        (STARTED, True, True, True),
        (OK, False, True, None),
        (NOT_OK, False, None, True),
        (ENDED, False, True, True),
        (Until.CHECKPOINT, False, None, None),
    ],
)
def test_what_each_kind_waits_for(
    until: Until, at_start: bool, after_success: bool | None, after_failure: bool | None
) -> None:
    """True: it starts, False: it goes on waiting, None: it never can and is cancelled."""
    for code, expected in ((0, after_success), (1, after_failure)):
        world = World()
        world.join("a")
        first = world.submit(spec(1))
        second = world.submit(spec(1, after=after(until, first)))
        assert started(world) == [first]
        world.start(first)
        assert started(world) == ([second] if at_start else [])
        if not at_start:
            world.exit(first, code)
            state, reason = world.job(second).state, world.job(second).reason
            assert started(world) == ([second] if expected else [])
            if expected is None:
                assert (state, reason) == (JobState.CANCELLED, Reason.DEPENDENCY)


def test_a_checkpoint_is_enough_though_the_job_then_fails(world: World) -> None:
    first = world.submit(spec(1))
    second = world.submit(spec(1, after=after(Until.CHECKPOINT, first)))
    world.tick()
    world.start(first)
    saved = Checkpoint("/c/1", at=5.0)
    over = AttemptStatus(first, 1, 7, 1.0, 2.0, code=1, checkpoint=saved)
    world.tell(inputs.AgentReported("a", over))
    assert started(world) == [second]


def test_all_or_some_of_several(world: World) -> None:
    jobs = [world.submit(spec(1)) for _ in range(3)]
    everything = world.submit(spec(1, after=after(OK, *jobs)))
    any_two = world.submit(spec(1, after=after(OK, *jobs), after_count=2))
    run(world, jobs[0])
    run(world, jobs[1])
    assert started(world) == [any_two]
    run(world, jobs[2])
    assert started(world) == [everything]


def test_some_of_several_can_do_without_the_others(world: World) -> None:
    jobs = [world.submit(spec(1)) for _ in range(3)]
    any_two = world.submit(spec(1, after=after(OK, *jobs), after_count=2))
    run(world, jobs[0], code=1)
    run(world, jobs[1])
    assert world.job(any_two).state is JobState.QUEUED
    run(world, jobs[2])
    assert started(world) == [any_two]


def test_a_whole_array_by_one_number(world: World) -> None:
    array = world.submit(spec(1, array="0-2"))
    clean = world.submit(spec(1, after=after(OK, array)))
    broken = world.submit(spec(1, after=after(NOT_OK, array)))
    third = world.submit(spec(1, after=after(OK, f"{array}_2")))
    run(world, array)
    run(world, array + 2)
    assert started(world) == [third]
    world.tell(inputs.Cancel(array + 1, "ada"))
    world.exit(array + 1, None, signal=15)
    assert started(world) == [broken]
    assert world.job(clean).state is JobState.CANCELLED
    assert world.job(clean).detail == (
        f"job {array} can no longer succeed: job {array}_1 is CANCELLED (cancelled by ada)"
    )


def test_an_element_called_by_its_id_is_that_element(world: World) -> None:
    array = world.submit(spec(1, array="0-2"))
    job = world.submit(spec(1, after=after(ENDED, array + 1)))
    assert world.job(job).spec.after == after(ENDED, f"{array}_1")
    run(world, array + 1)
    assert started(world) == [job]


def test_what_has_happened_already_keeps_nobody(world: World) -> None:
    first, second = world.submit(spec(1)), world.submit(spec(1))
    run(world, first)
    assert started(world) == []
    job = world.submit(spec(1, after=(*after(OK, first), *after(STARTED, second))))
    world.start(second)
    assert started(world) == [job]


@pytest.mark.parametrize(
    ("until", "told"),
    [
        (OK, "the job could never start: job 1 can no longer succeed: job 1 is FAILED (exit code 3)"),
        (
            Until.CHECKPOINT,
            "the job could never start: job 1 can no longer save a checkpoint: job 1 is FAILED (exit code 3)",
        ),
    ],
)
def test_what_can_never_be_is_refused(world: World, until: Until, told: str) -> None:
    first = world.submit(spec(1))
    run(world, first, code=3)
    refusal = world.refuse(inputs.Submit(spec(1, after=after(until, first)), "ada"))
    assert (refusal.where, refusal.message) == ("after", told)


def test_a_job_that_is_not_there_is_named(world: World) -> None:
    refusal = world.refuse(inputs.Submit(spec(1, after=after(OK, 7)), "ada"))
    assert (refusal.where, refusal.message) == ("after[0]", "there is no job 7 to wait for")


def test_jobs_forgotten_long_ago_count_by_their_outcome(world: World) -> None:
    """Nobody can wait for itself or for what comes later: only what has an id is there to wait for."""
    known = {"7": JobState.COMPLETED, "8": JobState.FAILED}
    world.state.next_job = 10
    reply = world.tell(inputs.Submit(spec(1, after=after(OK, 7)), "ada", known=known)).reply
    assert isinstance(reply, inputs.Accepted)
    assert started(world) == [10]
    refusal = world.refuse(inputs.Submit(spec(1, after=after(OK, 8)), "ada", known=known))
    assert refusal.message == "the job could never start: job 8 can no longer succeed: it is FAILED"


def test_hope_lost_spreads_down_the_line(world: World) -> None:
    """Two thousand in a row: nothing here is deep."""
    first = last = world.submit(spec(1))
    for _ in range(2_000):
        last = world.submit_unchecked(spec(1, after=after(OK, last)))
    world.tell(inputs.Cancel(first, "ada"))
    assert world.job(last).state is JobState.CANCELLED
    assert world.engine.keeper.followers.edges == []


def test_hope_lost_may_be_left_to_people() -> None:
    world = World(replace(PIPELINE, waiting=WaitRules(cancel_hopeless=False)))
    world.join("a")
    first = world.submit(spec(1))
    second = world.submit(spec(1, after=after(OK, first)))
    run(world, first, code=3)
    assert started(world) == []
    assert world.why(second).sentence == (
        "never starts: job 1 can no longer succeed: job 1 is FAILED (exit code 3); "
        "change what it waits for, or cancel it"
    )


def test_waiting_has_an_end(world: World) -> None:
    first = world.submit(spec(1, hold=True))
    second = world.submit(spec(1, after=after(OK, first), after_within_s=60))
    world.tick_at(T0 + 59)
    assert world.why(second).sentence == "waits for job 1 to succeed (queued), for 1s more"
    world.tick_at(T0 + 60)
    assert (world.job(second).state, world.job(second).reason) == (JobState.CANCELLED, Reason.DEPENDENCY)
    assert world.job(second).detail == "still waits for job 1 to succeed (queued) after 1m00s"


def test_a_restart_is_not_yet_a_failure(world: World) -> None:
    first = world.submit(spec(1, restart=Restart(RestartWhen.ON_FAILURE, 1, 0)))
    second = world.submit(spec(1, after=after(OK, first)))
    run(world, first, code=1)
    assert world.job(second).state is JobState.QUEUED
    run(world, first)
    assert started(world) == [second]


def test_it_says_what_it_waits_for_and_until_when(world: World) -> None:
    first = world.submit(spec(1, time_limit_s=600))
    second = world.submit(spec(1, after=after(OK, first)))
    world.tick()
    world.start(first)
    world.now += 60
    why = world.why(second)
    assert why.reason is Reason.DEPENDENCY
    assert why.sentence == "waits for job 1 to succeed (running, ends in 9m00s at the latest)"
    assert forecast(fork(world.engine), world.now).starts[second].at == T0 + 600


def test_begin_and_dependency_are_both_kept(world: World) -> None:
    first = world.submit(spec(1))
    second = world.submit(spec(1, after=after(OK, first), begin_at=T0 + 60))
    run(world, first)
    assert started(world) == []
    assert [start.job for start in world.tick_at(T0 + 60)] == [second]


def test_an_event_costs_what_hangs_on_it() -> None:
    """A thousand jobs wait for one; another ends, and nobody is asked."""
    world = World()
    world.join("a")
    busy, other = world.submit(spec(1)), world.submit(spec(1))
    for _ in range(1_000):
        world.submit_unchecked(spec(1, after=after(OK, busy)))
    asked: list[object] = []
    followers = world.engine.keeper.followers
    waiting = followers.waiting
    followers.waiting = lambda goal: (asked.append(goal), waiting(goal))[1]  # type: ignore[method-assign]
    run(world, other)
    assert asked == []
    run(world, busy)
    assert asked == [(str(busy), OK)]


# --- data ---


def test_data_is_waited_for_where_that_is_allowed(world: World) -> None:
    world = World(replace(PIPELINE, waiting=WaitRules(data_roots=("/data",))))
    world.join("a")
    job = world.submit(spec(1, after=(Dependency(Until.DATA, path="/data/set/READY"),)))
    assert started(world) == []
    assert world.why(job).sentence == "waits for /data/set/READY to be there"
    assert world.engine.keeper.followers.paths == ["/data/set/READY"]
    world.tell(inputs.DataFound("/data/set/READY"))
    assert started(world) == [job]
    assert world.engine.keeper.followers.paths == []


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/etc/shadow", "/etc/shadow: jobs may wait for data only below /data"),
        ("/database", "/database: jobs may wait for data only below /data"),
        ("/data/../etc/shadow", "must name an absolute path without '..', and no job"),
        ("data", "must name an absolute path without '..', and no job"),
    ],
)
def test_data_elsewhere_is_refused(path: str, told: str) -> None:
    world = World(replace(PIPELINE, waiting=WaitRules(data_roots=("/data",))))
    refusal = world.refuse(inputs.Submit(spec(1, after=(Dependency(Until.DATA, path=path),)), "ada"))
    assert (refusal.where, refusal.message) == ("after[0]", told)


def test_the_journal_tells_each_step(world: World) -> None:
    first, second = world.submit(spec(1)), world.submit(spec(1))
    third = world.submit(spec(1, after=(*after(OK, first), *after(ENDED, second))))
    run(world, first)
    run(world, second, code=2)
    told = [event for event in world.events if getattr(event, "job", None) == third][1:]
    assert told == [
        DependencyDecided(third, T0, 0, True),
        DependencyDecided(third, T0, 1, True),
        GateOpened(third, T0, Reason.DEPENDENCY),
    ]
    assert not [event for event in told if isinstance(event, JobEnded)]
