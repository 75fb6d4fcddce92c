"""Start estimates: when jobs were expected to start, the error, and what it says for the next estimate."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from controller.core.forecast.forecast import forecast, fork
from controller.core.model.events.queued import StartEstimated
from controller.core.model.inputs import controller_inputs, job_inputs
from controller.core.model.start_estimates import (
    LATEST,
    LIKELY,
    MAX_ESTIMATES,
    PROMISE,
    StartEstimate,
    StartScore,
)
from tests.engine_harness import PIPELINE, EngineHarness, spec

HOUR = 3_600.0


def busy(limit_h: float = 4) -> tuple[EngineHarness, int, int]:
    """A machine that is busy for `limit_h` hours, and a job that waits for all of it."""
    harness = EngineHarness(replace(PIPELINE))
    harness.join("m")
    running = harness.submit(spec(8, time_limit_s=limit_h * HOUR))
    harness.tick()
    harness.start(running)
    waiting = harness.submit(spec(8, time_limit_s=HOUR))
    return harness, running, waiting


def note(harness: EngineHarness, job: int, kind: str, hours: float) -> None:
    harness.tell(controller_inputs.NoteStart(job, kind, harness.now + hours * HOUR))


def test_reservation_of_the_first_job_is_recorded_once_and_scored_at_its_start() -> None:
    harness, running, waiting = busy()
    harness.submit(spec(0, time_limit_s=HOUR))  # may it pass?
    harness.tick()
    made = harness.now
    for _ in range(3):
        harness.now += 0.5 * HOUR
        harness.submit(spec(0))
        harness.tick()
    assert harness.job(waiting).foreseen == (StartEstimate(PROMISE, made, made + 4 * HOUR),)
    assert harness.restarted().job(waiting).foreseen == harness.job(waiting).foreseen
    harness.exit(running)
    harness.tick()
    score = harness.state.estimates.starts[PROMISE]
    assert score == StartScore(1, 4 * HOUR, -2.5 * HOUR, 2.5 * HOUR, 0, deque([-0.625], 100))
    assert harness.restarted().state.estimates.starts == {PROMISE: score}
    assert harness.job(waiting).foreseen, "it can be looked up afterwards"


def test_estimates_shown_to_users_are_recorded_at_intervals() -> None:
    harness, running, waiting = busy()
    note(harness, waiting, LATEST, 4)
    note(harness, waiting, LIKELY, 1)
    note(harness, waiting, LATEST, 4)
    harness.now += 60
    note(harness, waiting, LATEST, 3)
    assert [each.kind for each in harness.job(waiting).foreseen] == [LATEST, LIKELY, LATEST]
    for _ in range(2 * MAX_ESTIMATES):
        harness.now += 60
        note(harness, waiting, LATEST, 3)
    assert len(harness.job(waiting).foreseen) == MAX_ESTIMATES
    note(harness, running, LATEST, 3)
    note(harness, 99, LATEST, 3)
    estimated = [event for event in harness.events if isinstance(event, StartEstimated)]
    assert {event.job for event in estimated} == {waiting}, "only waiting jobs get estimates"
    harness.exit(running)
    harness.tick()
    scores = harness.state.estimates.starts
    assert (scores[LIKELY].count, scores[LATEST].count) == (1, MAX_ESTIMATES - 1)


def test_next_attempt_gets_new_estimates() -> None:
    harness, running, waiting = busy()
    note(harness, waiting, LIKELY, 1)
    harness.exit(running)
    harness.tick()
    harness.start(waiting)
    harness.tell(job_inputs.Preempt(waiting, "root"))
    harness.exit(waiting, None, signal=15, why="preempted")
    assert harness.job(waiting).foreseen == ()
    harness.tick()
    assert harness.state.estimates.starts[LIKELY].count == 1


def test_a_range_is_as_wide_as_errors_were() -> None:
    """Of twenty estimates made an hour ahead, most starts came half an hour early, some on time and two an
    hour late.
    """
    score = StartScore()
    for minutes in [-30] * 12 + [0] * 6 + [60] * 2:
        score.add(StartEstimate(LIKELY, 0.0, HOUR), HOUR + minutes * 60)
    assert (score.count, score.late, score.bias_s) == (20, 2, -4 * HOUR)
    assert score.span(10 * HOUR, now=8 * HOUR) == (9 * HOUR, 10 * HOUR)
    for _ in range(4):
        score.add(StartEstimate(LIKELY, 0.0, HOUR), 2 * HOUR)
    assert score.span(10 * HOUR, now=8 * HOUR) == (9 * HOUR, 12 * HOUR)
    assert StartScore().span(10 * HOUR, now=8 * HOUR) is None, "nothing is known yet"


def test_estimates_on_a_copy_are_not_scored() -> None:
    harness, _, waiting = busy()
    note(harness, waiting, LATEST, 4)
    assert waiting in forecast(fork(harness.engine), harness.now).starts
    assert harness.state.estimates.starts == {}
