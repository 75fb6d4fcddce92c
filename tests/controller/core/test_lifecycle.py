"""When jobs may begin, until when they may start, and when they start again."""

from __future__ import annotations

import pytest

from controller.core import inputs
from controller.core.forecast import forecast, fork
from controller.core.jobs import NEVER
from tests.worlds import World, spec
from wire.conditions import OnNodeLost, Restart, RestartWhen
from wire.frames import AttemptStatus
from wire.words import JobState, Reason

T0 = 1_000.0
ON_FAILURE, ALWAYS = RestartWhen.ON_FAILURE, RestartWhen.ALWAYS


@pytest.fixture
def world() -> World:
    world = World()
    world.join("a")
    return world


def outcome(world: World, job: int) -> tuple[JobState, Reason]:
    return world.job(job).state, world.job(job).reason


# --- begin ---


def test_a_job_does_not_begin_before_its_time(world: World) -> None:
    job = world.submit(spec(1, begin_at=T0 + 60))
    other = world.submit(spec(1))
    assert [start.job for start in world.tick()] == [other]
    assert (world.why(job).reason, world.why(job).sentence) == (Reason.BEGIN, "may not begin yet: in 1m00s")
    assert world.engine.keeper.next_at == T0 + 60
    assert world.tick_at(T0 + 59) == []
    assert [start.job for start in world.tick_at(T0 + 60)] == [job]
    assert world.engine.keeper.next_at == NEVER


def test_a_time_that_has_passed_keeps_nobody(world: World) -> None:
    job = world.submit(spec(1, begin_at=T0 - 5))
    assert [start.job for start in world.tick()] == [job]


def test_a_held_job_whose_time_comes_is_still_held(world: World) -> None:
    job = world.submit(spec(1, begin_at=T0 + 60, hold=True))
    assert world.tick_at(T0 + 60) == []
    world.tell(inputs.Release(job, "ada"))
    assert [start.job for start in world.tick()] == [job]


def test_a_job_released_before_its_time_goes_on_waiting(world: World) -> None:
    job = world.submit(spec(1, begin_at=T0 + 60, hold=True))
    world.tell(inputs.Release(job, "ada"))
    assert world.tick() == []
    assert [start.job for start in world.tick_at(T0 + 60)] == [job]


def test_a_forecast_knows_when_it_begins(world: World) -> None:
    job = world.submit(spec(1, begin_at=T0 + 60))
    ahead = forecast(fork(world.engine), world.now)
    assert ahead.starts[job].at == T0 + 60


# --- deadline ---


def test_a_job_that_can_no_longer_end_in_time_fails(world: World) -> None:
    world.submit(spec(8, time_limit_s=500))
    late = world.submit(spec(8, time_limit_s=100, deadline_at=T0 + 300))
    world.tick()
    assert world.engine.keeper.next_at == T0 + 200
    world.tick_at(T0 + 200)
    assert outcome(world, late) == (JobState.FAILED, Reason.DEADLINE)
    assert world.job(late).detail == "can no longer end by its deadline: it may run for 1m40s"


def test_the_last_moment_is_early_enough(world: World) -> None:
    first = world.submit(spec(8, time_limit_s=200))
    late = world.submit(spec(8, time_limit_s=100, deadline_at=T0 + 300))
    world.tick()
    world.start(first)
    world.now = T0 + 200
    world.exit(first)
    assert [start.job for start in world.tick()] == [late]


def test_a_job_that_runs_into_its_deadline_is_stopped(world: World) -> None:
    job = world.submit(spec(1, deadline_at=T0 + 300))
    world.tick()
    world.start(job)
    world.tick_at(T0 + 300)
    assert world.stops() == [("a", job)]
    world.tick_at(T0 + 301)
    assert len(world.stops()) == 1
    world.exit(job, None, signal=15, why="cancelled")
    assert outcome(world, job) == (JobState.FAILED, Reason.DEADLINE)


def test_a_success_that_raced_the_deadline_is_a_success(world: World) -> None:
    job = world.submit(spec(1, deadline_at=T0 + 300))
    world.tick()
    world.start(job)
    world.tick_at(T0 + 300)
    world.exit(job, 0)
    assert world.job(job).state is JobState.COMPLETED


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"deadline_at": T0 - 60}, "has passed 1m00s ago"),
        (
            {"deadline_at": T0 + 60, "time_limit_s": 90},
            "is 1m00s away: with a time limit of 1m30s the job cannot end by then",
        ),
        (
            {"deadline_at": T0 + 60, "time_limit_s": 30, "begin_at": T0 + 40},
            "cannot be met by a job that begins at begin_at and may run for time_limit_s",
        ),
    ],
)
def test_a_deadline_that_cannot_be_met_is_refused(
    world: World, asked: dict[str, float], message: str
) -> None:
    refusal = world.refuse(inputs.Submit(spec(1, **asked), "ada"))
    assert (refusal.where, refusal.message) == ("deadline_at", message)


# --- start_within_s ---


def test_a_job_gives_up_when_it_finds_no_place_in_time(world: World) -> None:
    world.submit(spec(8))
    job = world.submit(spec(8, start_within_s=100))
    world.tick_at(T0 + 99)
    assert world.job(job).state is JobState.QUEUED
    world.tick_at(T0 + 100)
    assert outcome(world, job) == (JobState.FAILED, Reason.START_TIMEOUT)
    assert world.job(job).detail == "found no place within 1m40s"


def test_patience_counts_from_when_it_could_have_started(world: World) -> None:
    world.submit(spec(8))
    job = world.submit(spec(8, start_within_s=100, begin_at=T0 + 50, hold=True))
    world.tick_at(T0 + 50)
    world.now = T0 + 70
    world.tell(inputs.Release(job, "ada"))
    world.tick_at(T0 + 169)
    assert world.job(job).state is JobState.QUEUED
    world.tick_at(T0 + 170)
    assert world.job(job).reason is Reason.START_TIMEOUT


# --- restarts ---


def run(world: World, job: int, **how: object) -> None:
    """The job starts now, and all its processes return a second later."""
    assert job in {start.job for start in world.tick()}
    world.start(job)
    world.now += 1
    world.exit(job, **how)  # type: ignore[arg-type]


def test_a_failure_is_tried_again_until_the_limit(world: World) -> None:
    job = world.submit(spec(1, restart=Restart(ON_FAILURE, limit=2, delay_s=10, delay_most_s=15)))
    waits = []
    for _ in range(2):
        run(world, job, code=7)
        assert world.job(job).state is JobState.QUEUED
        assert world.tick() == []
        waits.append(world.engine.keeper.next_at - world.now)
        world.now = world.engine.keeper.next_at
    run(world, job, code=7)
    assert outcome(world, job) == (JobState.FAILED, Reason.EXIT_NONZERO)
    assert waits == [10, 15]
    assert (world.job(job).attempt, world.job(job).wait.restarts) == (3, 2)


def test_what_it_waits_for_between_attempts_is_said(world: World) -> None:
    job = world.submit(spec(1, restart=Restart(ON_FAILURE, limit=2, delay_s=10)))
    run(world, job, code=7)
    why = world.why(job)
    assert why.reason is Reason.BACKOFF
    assert why.sentence == "waits 10s before it starts again (restart 1 of 2 in 10s: exit code 7)"


@pytest.mark.parametrize(
    ("policy", "how", "again"),
    [
        (Restart(), {"code": 1}, False),
        (Restart(ON_FAILURE), {"code": 0}, False),
        (Restart(ON_FAILURE), {"code": None, "signal": 9}, True),
        (Restart(ON_FAILURE), {"code": None, "why": "node_lost"}, True),
        (Restart(ON_FAILURE, codes=(75,)), {"code": 75}, True),
        (Restart(ON_FAILURE, codes=(75,)), {"code": 1}, False),
        (Restart(ON_FAILURE, codes=(137,)), {"code": None, "signal": 9}, True),
        (Restart(ON_FAILURE, codes=(75,)), {"code": None, "why": "node_lost"}, True),
        (Restart(ALWAYS), {"code": 0}, True),
        (Restart(ALWAYS, limit=None), {"code": 1}, True),
    ],
)
def test_which_ends_are_followed_by_another_attempt(
    world: World, policy: Restart, how: dict[str, object], again: bool
) -> None:
    job = world.submit(spec(1, restart=policy))
    run(world, job, **how)
    assert (world.job(job).state is JobState.QUEUED) == again


def test_a_cancelled_job_stays_cancelled(world: World) -> None:
    job = world.submit(spec(1, restart=Restart(ALWAYS)))
    world.tick()
    world.start(job)
    world.tell(inputs.Cancel(job, "ada"))
    world.exit(job, None, signal=15, why="cancelled")
    assert world.job(job).state is JobState.CANCELLED


def test_a_job_that_waits_to_start_again_can_be_cancelled(world: World) -> None:
    job = world.submit(spec(1, restart=Restart(ALWAYS)))
    run(world, job)
    world.tell(inputs.Cancel(job, "ada"))
    assert world.job(job).state is JobState.CANCELLED
    assert world.engine.keeper.next_at == NEVER


def test_a_restart_has_the_old_place_in_the_queue(world: World) -> None:
    first = world.submit(spec(8, restart=Restart(ON_FAILURE, delay_s=0)))
    second = world.submit(spec(8))
    run(world, first, code=1)
    assert [start.job for start in world.tick()] == [first]
    assert world.job(second).state is JobState.QUEUED


def test_a_restart_that_could_not_meet_the_deadline_is_not_made(world: World) -> None:
    policy = Restart(ON_FAILURE, delay_s=50)
    job = world.submit(spec(1, restart=policy, time_limit_s=60, deadline_at=T0 + 100))
    run(world, job, code=1)
    assert outcome(world, job) == (JobState.FAILED, Reason.EXIT_NONZERO)


def test_a_job_whose_host_rebooted_starts_again_as_often_as_it_may(world: World) -> None:
    job = world.submit(spec(1, restart=Restart(ON_FAILURE, limit=1, delay_s=0)))
    world.tick()
    world.start(job)
    world.join("a", boot="b2")
    assert outcome(world, job) == (JobState.QUEUED, Reason.NODE_LOST)
    world.tick()
    world.start(job)
    world.join("a", boot="b3")
    assert outcome(world, job) == (JobState.FAILED, Reason.NODE_LOST)


def test_a_member_that_failed_takes_the_gang_with_it_and_the_gang_starts_again(world: World) -> None:
    world.join("b")
    job = world.submit(spec(16, nodes=2, restart=Restart(ON_FAILURE, delay_s=0)))
    world.tick()
    world.start(job)
    world.exit(job, 5, node="b")
    world.exit(job, None, node="a", signal=15, why="member_failed")
    assert world.job(job).state is JobState.QUEUED
    assert len(world.tick()) == 2


def test_an_order_to_an_old_attempt_does_not_touch_the_new_one(world: World) -> None:
    job = world.submit(spec(1, restart=Restart(ON_FAILURE, delay_s=0)))
    run(world, job, code=1)
    world.tick()
    world.tell(inputs.AgentReported("a", AttemptStatus(job, 1, 7, 1.0, 2.0, code=0)))
    assert (world.job(job).state, world.job(job).attempt) == (JobState.SCHEDULED, 2)


def test_a_node_lost_again_and_again_takes_the_job_with_it_in_the_end(world: World) -> None:
    asked = spec(1, on_node_lost=OnNodeLost.REQUEUE, restart=Restart(limit=2))
    job = world.submit(asked)
    for boot in ("b2", "b3", "b4"):
        world.tick()
        world.start(job)
        world.join("a", boot=boot)
    assert outcome(world, job) == (JobState.FAILED, Reason.NODE_LOST)
    assert (world.job(job).attempt, world.job(job).wait.restarts) == (3, 2)
