"""When jobs were said to start, how wrong that was, and what it says of the next time."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from controller.core import inputs
from controller.core.events import StartEstimated
from controller.core.forecast import forecast, fork
from controller.core.foresight import LATEST, LIKELY, MOST, PROMISE, StartEstimate, StartScore
from tests.worlds import PIPELINE, World, spec

HOUR = 3_600.0


def busy(limit_h: float = 4) -> tuple[World, int, int]:
    """A machine that is taken for so long, and a job that waits for all of it."""
    world = World(replace(PIPELINE))
    world.join("m")
    running = world.submit(spec(8, time_limit_s=limit_h * HOUR))
    world.tick()
    world.start(running)
    waiting = world.submit(spec(8, time_limit_s=HOUR))
    return world, running, waiting


def note(world: World, job: int, kind: str, hours: float) -> None:
    world.tell(inputs.NoteStart(job, kind, world.now + hours * HOUR))


def test_what_is_promised_to_the_first_is_kept_once_and_scored_when_it_starts() -> None:
    world, running, waiting = busy()
    world.submit(spec(0, time_limit_s=HOUR))  # may it pass?
    world.tick()
    made = world.now
    for _ in range(3):
        world.now += 0.5 * HOUR
        world.submit(spec(0))
        world.tick()
    assert world.job(waiting).foreseen == (StartEstimate(PROMISE, made, made + 4 * HOUR),)
    assert world.restarted().job(waiting).foreseen == world.job(waiting).foreseen
    world.exit(running)
    world.tick()
    score = world.state.estimates.starts[PROMISE]
    assert score == StartScore(1, 4 * HOUR, -2.5 * HOUR, 2.5 * HOUR, 0, deque([-0.625], 100))
    assert world.restarted().state.estimates.starts == {PROMISE: score}
    assert world.job(waiting).foreseen, "it can be looked up afterwards"


def test_what_somebody_was_told_is_kept_now_and_then() -> None:
    world, running, waiting = busy()
    note(world, waiting, LATEST, 4)
    note(world, waiting, LIKELY, 1)
    note(world, waiting, LATEST, 4)
    world.now += 60
    note(world, waiting, LATEST, 3)
    assert [each.kind for each in world.job(waiting).foreseen] == [LATEST, LIKELY, LATEST]
    for _ in range(2 * MOST):
        world.now += 60
        note(world, waiting, LATEST, 3)
    assert len(world.job(waiting).foreseen) == MOST
    note(world, running, LATEST, 3)
    note(world, 99, LATEST, 3)
    told = [event for event in world.events if isinstance(event, StartEstimated)]
    assert {event.job for event in told} == {waiting}, "who does not wait has nothing foretold"
    world.exit(running)
    world.tick()
    scores = world.state.estimates.starts
    assert (scores[LIKELY].count, scores[LATEST].count) == (1, MOST - 1)


def test_another_attempt_is_foretold_anew() -> None:
    world, running, waiting = busy()
    note(world, waiting, LIKELY, 1)
    world.exit(running)
    world.tick()
    world.start(waiting)
    world.tell(inputs.Preempt(waiting, "root"))
    world.exit(waiting, None, signal=15, why="preempted")
    assert world.job(waiting).foreseen == ()
    world.tick()
    assert world.state.estimates.starts[LIKELY].count == 1


def test_a_range_is_as_wide_as_errors_were() -> None:
    """Of twenty estimates an hour ahead, most came half an hour early, some on time, two an hour late."""
    score = StartScore()
    for minutes in [-30] * 12 + [0] * 6 + [60] * 2:
        score.add(StartEstimate(LIKELY, 0.0, HOUR), HOUR + minutes * 60)
    assert (score.count, score.late, score.bias_s) == (20, 2, -4 * HOUR)
    assert score.span(10 * HOUR, now=8 * HOUR) == (9 * HOUR, 10 * HOUR)
    for _ in range(4):
        score.add(StartEstimate(LIKELY, 0.0, HOUR), 2 * HOUR)
    assert score.span(10 * HOUR, now=8 * HOUR) == (9 * HOUR, 12 * HOUR)
    assert StartScore().span(10 * HOUR, now=8 * HOUR) is None, "nothing is known yet"


def test_what_happens_on_a_copy_is_not_scored() -> None:
    world, _, waiting = busy()
    note(world, waiting, LATEST, 4)
    assert waiting in forecast(fork(world.engine), world.now).starts
    assert world.state.estimates.starts == {}
