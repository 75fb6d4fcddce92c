"""When jobs may begin, until when they may start, and when they start again."""

from __future__ import annotations

import pytest

from controller.core.forecast.forecast import forecast, fork
from controller.core.model.inputs import agent_inputs, job_inputs
from controller.core.model.inputs.input import JobCommand
from controller.core.model.job import NEVER
from controller.core.model.wait_state import Wait
from tests.engine_harness import EngineHarness, spec
from wire.agent.reports import AttemptStatus
from wire.codec import decode
from wire.job.start_conditions import OnNodeLost, Restart, RestartWhen
from wire.names import JobState, Reason

T0 = 1_000.0
ON_FAILURE, ALWAYS = RestartWhen.ON_FAILURE, RestartWhen.ALWAYS


@pytest.fixture
def harness() -> EngineHarness:
    harness = EngineHarness()
    harness.join("a")
    return harness


def outcome(harness: EngineHarness, job: int) -> tuple[JobState, Reason]:
    return harness.job(job).state, harness.job(job).reason


# --- begin ---


def test_a_job_does_not_begin_before_its_time(harness: EngineHarness) -> None:
    job = harness.submit(spec(1, begin_at=T0 + 60))
    other = harness.submit(spec(1))
    assert [start.job for start in harness.tick()] == [other]
    assert (harness.why(job).reason, harness.why(job).sentence) == (
        Reason.BEGIN,
        "its begin time is in 1m00s",
    )
    assert harness.engine.due_jobs.next_at == T0 + 60
    assert harness.tick_at(T0 + 59) == []
    assert [start.job for start in harness.tick_at(T0 + 60)] == [job]
    assert harness.engine.due_jobs.next_at == NEVER


def test_a_begin_time_in_the_past_does_not_wait(harness: EngineHarness) -> None:
    job = harness.submit(spec(1, begin_at=T0 - 5))
    assert [start.job for start in harness.tick()] == [job]


def test_a_held_job_whose_time_comes_is_still_held(harness: EngineHarness) -> None:
    job = harness.submit(spec(1, begin_at=T0 + 60, hold=True))
    assert harness.tick_at(T0 + 60) == []
    harness.tell(job_inputs.Release(job, "ada"))
    assert [start.job for start in harness.tick()] == [job]


def test_a_job_released_before_its_time_goes_on_waiting(harness: EngineHarness) -> None:
    job = harness.submit(spec(1, begin_at=T0 + 60, hold=True))
    harness.tell(job_inputs.Release(job, "ada"))
    assert harness.tick() == []
    assert [start.job for start in harness.tick_at(T0 + 60)] == [job]


def test_forecast_respects_the_begin_time(harness: EngineHarness) -> None:
    job = harness.submit(spec(1, begin_at=T0 + 60))
    ahead = forecast(fork(harness.engine), harness.now)
    assert ahead.starts[job].at == T0 + 60


# --- deadline ---


def test_a_job_that_can_no_longer_end_before_its_deadline_fails(harness: EngineHarness) -> None:
    harness.submit(spec(8, time_limit_s=500))
    late = harness.submit(spec(8, time_limit_s=100, deadline_at=T0 + 300))
    harness.tick()
    assert harness.engine.due_jobs.next_at == T0 + 200
    harness.tick_at(T0 + 200)
    assert outcome(harness, late) == (JobState.FAILED, Reason.DEADLINE)
    assert harness.job(late).detail == "can no longer end by its deadline: it may run for 1m40s"


def test_a_job_starts_at_the_last_moment_that_meets_its_deadline(harness: EngineHarness) -> None:
    first = harness.submit(spec(8, time_limit_s=200))
    late = harness.submit(spec(8, time_limit_s=100, deadline_at=T0 + 300))
    harness.tick()
    harness.start(first)
    harness.now = T0 + 200
    harness.exit(first)
    assert [start.job for start in harness.tick()] == [late]


def test_a_job_that_runs_into_its_deadline_is_stopped(harness: EngineHarness) -> None:
    job = harness.submit(spec(1, deadline_at=T0 + 300))
    harness.tick()
    harness.start(job)
    harness.tick_at(T0 + 300)
    assert harness.stops() == [("a", job)]
    harness.tick_at(T0 + 301)
    assert len(harness.stops()) == 1
    harness.exit(job, None, signal=15, why="cancelled")
    assert outcome(harness, job) == (JobState.FAILED, Reason.DEADLINE)


def test_a_success_that_raced_the_deadline_is_a_success(harness: EngineHarness) -> None:
    job = harness.submit(spec(1, deadline_at=T0 + 300))
    harness.tick()
    harness.start(job)
    harness.tick_at(T0 + 300)
    harness.exit(job, 0)
    assert harness.job(job).state is JobState.COMPLETED


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
    harness: EngineHarness, asked: dict[str, float], message: str
) -> None:
    refusal = harness.refuse(job_inputs.Submit(spec(1, **asked), "ada"))
    assert (refusal.where, refusal.message) == ("deadline_at", message)


# --- start_within_s ---


def test_a_job_that_cannot_start_within_its_limit_fails(harness: EngineHarness) -> None:
    harness.submit(spec(8))
    job = harness.submit(spec(8, start_within_s=100))
    harness.tick_at(T0 + 99)
    assert harness.job(job).state is JobState.QUEUED
    harness.tick_at(T0 + 100)
    assert outcome(harness, job) == (JobState.FAILED, Reason.START_TIMEOUT)
    assert harness.job(job).detail == "did not start within 1m40s"


def test_start_within_counts_from_when_the_job_was_ready(harness: EngineHarness) -> None:
    harness.submit(spec(8))
    job = harness.submit(spec(8, start_within_s=100, begin_at=T0 + 50, hold=True))
    harness.tick_at(T0 + 50)
    harness.now = T0 + 70
    harness.tell(job_inputs.Release(job, "ada"))
    harness.tick_at(T0 + 169)
    assert harness.job(job).state is JobState.QUEUED
    harness.tick_at(T0 + 170)
    assert harness.job(job).reason is Reason.START_TIMEOUT


# --- restarts ---


def run(harness: EngineHarness, job: int, **how: object) -> None:
    """The job starts now, and all its processes return a second later."""
    assert job in {start.job for start in harness.tick()}
    harness.start(job)
    harness.now += 1
    harness.exit(job, **how)  # type: ignore[arg-type]


def test_a_failure_is_tried_again_until_the_limit(harness: EngineHarness) -> None:
    job = harness.submit(spec(1, restart=Restart(ON_FAILURE, limit=2, delay_s=10, delay_most_s=15)))
    waits = []
    for _ in range(2):
        run(harness, job, code=7)
        assert harness.job(job).state is JobState.QUEUED
        assert harness.tick() == []
        waits.append(harness.engine.due_jobs.next_at - harness.now)
        harness.now = harness.engine.due_jobs.next_at
    run(harness, job, code=7)
    assert outcome(harness, job) == (JobState.FAILED, Reason.EXIT_NONZERO)
    assert waits == [10, 15]
    assert (harness.job(job).attempt, harness.job(job).wait.restarts) == (3, 2)


def crash(harness: EngineHarness, job: int, ran_s: float) -> float:
    """The job starts, runs this long and fails. Return the restart delay in seconds, and wait for its end."""
    assert job in {start.job for start in harness.tick()}
    harness.start(job)
    harness.now += ran_s
    harness.exit(job, 7)
    delay = harness.engine.due_jobs.next_at - harness.now
    harness.now += delay
    return float(delay)


def test_a_healthy_attempt_resets_the_restart_delay(harness: EngineHarness) -> None:
    """The attempt after a delay of 80 s is healthy after 800 s, which is 10 times the delay."""
    job = harness.submit(spec(1, restart=Restart(ON_FAILURE, limit=9, delay_s=10, delay_most_s=600)))
    assert [crash(harness, job, ran_s) for ran_s in (1, 599, 300, 300)] == [10, 20, 40, 80]
    assert crash(harness, job, 799) == 160, "it ran more than 10 minutes, but less than 10 times its delay"
    assert crash(harness, job, 1_600) == 10
    assert harness.restarted().job(job).wait == harness.job(job).wait
    assert [crash(harness, job, ran_s) for ran_s in (1, 600, 1)] == [20, 10, 20]
    assert harness.job(job).wait.restarts == 9, "the count that users see is not reset"
    harness.tick()
    harness.start(job)
    harness.now += 86_400
    harness.exit(job, 7)
    assert outcome(harness, job) == (JobState.FAILED, Reason.EXIT_NONZERO), "the limit is not reset"


@pytest.mark.parametrize(("command", "why"), [(job_inputs.Requeue, ""), (job_inputs.Preempt, "preempted")])
def test_a_healthy_attempt_that_is_requeued_resets_the_restart_delay(
    harness: EngineHarness, command: type[JobCommand], why: str
) -> None:
    job = harness.submit(spec(1, restart=Restart(ON_FAILURE, limit=9, delay_s=10)))
    assert [crash(harness, job, 1) for _ in range(3)] == [10, 20, 40]
    harness.tick()
    harness.start(job)
    harness.now += 600
    harness.tell(command(job, "root"))
    harness.exit(job, None, signal=15, why=why)
    assert harness.job(job).state is JobState.QUEUED
    assert crash(harness, job, 1) == 10


def test_a_job_row_without_the_start_of_the_backoff_is_read() -> None:
    """Rows of earlier versions have no `backoff_from`; all restarts count then."""
    assert decode(Wait, {"restarts": 3}) == Wait(restarts=3, backoff_from=0)


def test_explain_names_the_restart_delay(harness: EngineHarness) -> None:
    job = harness.submit(spec(1, restart=Restart(ON_FAILURE, limit=2, delay_s=10)))
    run(harness, job, code=7)
    why = harness.why(job)
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
def test_ends_that_lead_to_another_attempt(
    harness: EngineHarness, policy: Restart, how: dict[str, object], again: bool
) -> None:
    job = harness.submit(spec(1, restart=policy))
    run(harness, job, **how)
    assert (harness.job(job).state is JobState.QUEUED) == again


def test_a_cancelled_job_stays_cancelled(harness: EngineHarness) -> None:
    job = harness.submit(spec(1, restart=Restart(ALWAYS)))
    harness.tick()
    harness.start(job)
    harness.tell(job_inputs.Cancel(job, "ada"))
    harness.exit(job, None, signal=15, why="cancelled")
    assert harness.job(job).state is JobState.CANCELLED


def test_a_job_that_waits_to_start_again_can_be_cancelled(harness: EngineHarness) -> None:
    job = harness.submit(spec(1, restart=Restart(ALWAYS)))
    run(harness, job)
    harness.tell(job_inputs.Cancel(job, "ada"))
    assert harness.job(job).state is JobState.CANCELLED
    assert harness.engine.due_jobs.next_at == NEVER


def test_a_restart_has_the_old_place_in_the_queue(harness: EngineHarness) -> None:
    first = harness.submit(spec(8, restart=Restart(ON_FAILURE, delay_s=0)))
    second = harness.submit(spec(8))
    run(harness, first, code=1)
    assert [start.job for start in harness.tick()] == [first]
    assert harness.job(second).state is JobState.QUEUED


def test_a_job_is_not_restarted_when_it_would_miss_its_deadline(harness: EngineHarness) -> None:
    policy = Restart(ON_FAILURE, delay_s=50)
    job = harness.submit(spec(1, restart=policy, time_limit_s=60, deadline_at=T0 + 100))
    run(harness, job, code=1)
    assert outcome(harness, job) == (JobState.FAILED, Reason.EXIT_NONZERO)


def test_restarts_after_reboots_stop_at_the_restart_limit(harness: EngineHarness) -> None:
    job = harness.submit(spec(1, restart=Restart(ON_FAILURE, limit=1, delay_s=0)))
    harness.tick()
    harness.start(job)
    harness.join("a", boot="b2")
    assert outcome(harness, job) == (JobState.QUEUED, Reason.NODE_LOST)
    harness.tick()
    harness.start(job)
    harness.join("a", boot="b3")
    assert outcome(harness, job) == (JobState.FAILED, Reason.NODE_LOST)


def test_failed_member_stops_the_gang_and_the_gang_is_requeued(
    harness: EngineHarness,
) -> None:
    harness.join("b")
    job = harness.submit(spec(16, nodes=2, restart=Restart(ON_FAILURE, delay_s=0)))
    harness.tick()
    harness.start(job)
    harness.exit(job, 5, node="b")
    harness.exit(job, None, node="a", signal=15, why="member_failed")
    assert harness.job(job).state is JobState.QUEUED
    assert len(harness.tick()) == 2


def test_report_of_an_old_attempt_does_not_change_the_new_one(harness: EngineHarness) -> None:
    job = harness.submit(spec(1, restart=Restart(ON_FAILURE, delay_s=0)))
    run(harness, job, code=1)
    harness.tick()
    harness.tell(agent_inputs.AgentReported("a", AttemptStatus(job, 1, 7, 1.0, 2.0, code=0)))
    assert (harness.job(job).state, harness.job(job).attempt) == (JobState.SCHEDULED, 2)


def test_a_job_fails_after_its_limit_of_lost_nodes(harness: EngineHarness) -> None:
    asked = spec(1, on_node_lost=OnNodeLost.REQUEUE, restart=Restart(limit=2))
    job = harness.submit(asked)
    for boot in ("b2", "b3", "b4"):
        harness.tick()
        harness.start(job)
        harness.join("a", boot=boot)
    assert outcome(harness, job) == (JobState.FAILED, Reason.NODE_LOST)
    assert (harness.job(job).attempt, harness.job(job).wait.restarts) == (3, 2)
