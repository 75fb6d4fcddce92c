"""How long jobs are likely to run: what is learnt of whom, what plans make of it, and how it is scored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core import inputs
from controller.core.estimates import KEPT, Estimating, Runs, Score, stem_of
from controller.core.events import PredictionOutlived
from controller.core.forecast import expecting, forecast, fork
from controller.core.jobs import NEVER
from controller.core.plugin import Backfill
from tests.worlds import PIPELINE, World, spec
from wire.spec import JobSpec
from wire.words import JobState

HOUR = 3_600.0
PREDICTED = Estimating(predicted=True, quantile=0.9, least=3)


def world_of(estimating: Estimating = PREDICTED, backfill: Backfill = Backfill.EASY) -> World:
    """A machine of eight GPUs."""
    world = World(replace(PIPELINE, estimating=estimating, backfill=backfill))
    world.join("m")
    return world


def train(gpus: float = 4, limit_h: float | None = 10, **more: object) -> JobSpec:
    limit = None if limit_h is None else limit_h * HOUR
    return spec(gpus, **{"name": "train", "time_limit_s": limit, **more})


def ran(world: World, asked: JobSpec, hours: float, user: str = "ada", code: int = 0, why: str = "") -> int:
    """A job that ran so long, alone."""
    job = world.submit(asked, user)
    world.tick()
    world.start(job)
    world.now += hours * HOUR
    world.exit(job, code, why=why)
    return job


def predicted(world: World, asked: JobSpec, user: str = "ada") -> float | None:
    """In hours."""
    job = world.job(world.submit(asked, user))
    found = world.engine.predicted(job)
    world.tell(inputs.Cancel(job.id, "ada"))
    return None if found is None else found / HOUR


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("train-07", "train"),
        ("train", "train"),
        ("lr_0.1", "lr_0"),
        ("exp17", "exp"),
        ("42", "42"),
        ("é-9", "é"),
    ],
)
def test_a_number_at_its_end_is_not_part_of_a_name(name: str, stem: str) -> None:
    assert stem_of(name) == stem


KNOWN = [
    ("the same again", train(), "ada", 3.0),
    ("the next of a series", train(name="train-8"), "ada", 3.0),
    ("another size: what is known of any size", train(2), "ada", 3.0),
    ("never more than may be", train(limit_h=2), "ada", 2.0),
    ("without a limit", train(limit_h=None), "ada", 3.0),
    ("another name", train(name="eval"), "ada", None),
    ("another user", train(), "bo", None),
]


@pytest.mark.parametrize(
    ("asked", "user", "hours"), [row[1:] for row in KNOWN], ids=[row[0] for row in KNOWN]
)
def test_whose_runs_are_alike(asked: JobSpec, user: str, hours: float | None) -> None:
    world = world_of()
    for length in (1, 3, 2):
        ran(world, train(), length)
    assert predicted(world, asked, user) == hours


def test_three_runs_are_needed_and_the_quantile_says_how_careful_a_prediction_is() -> None:
    world = world_of(Estimating(True, 0.5, 3))
    ran(world, train(), 1)
    ran(world, train(), 2)
    assert predicted(world, train()) is None
    ran(world, train(), 9)
    assert predicted(world, train()) == 2.0


def test_only_what_says_something_is_learnt() -> None:
    """A job that failed by itself or ran into its limit did what it does; one that was cancelled did not."""
    world = world_of(Estimating(True, 0.9, 1))
    job = world.submit(train())
    world.tick()
    world.start(job)
    world.tell(inputs.Cancel(job, "ada"))
    world.exit(job, None, signal=15, why="cancelled")
    assert world.job(job).state is JobState.CANCELLED
    ran(world, train(), 1, code=1, why="launch_failed")
    assert predicted(world, train()) is None
    ran(world, train(), 2, code=1)
    assert predicted(world, train()) == 2.0
    ran(world, train(), 10, why="time_limit")
    assert predicted(world, train()) == 10.0


def test_only_the_last_runs_count() -> None:
    runs = Runs()
    for number in range(KEPT + 8):
        runs.learn(float(number), number)
    assert runs.quantile(1.0) == KEPT + 7
    assert runs.quantile(0.01) == 8


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.EASY_SJBF, Backfill.CONSERVATIVE])
@pytest.mark.parametrize("plans", ["limit", "predicted"])
def test_who_is_known_to_be_short_passes(backfill: Backfill, plans: str) -> None:
    """4 GPUs run for 2 h, 8 are wanted next; `train` may run for 10 h, and has always been done in 1 h."""
    world = world_of(replace(PREDICTED, predicted=plans == "predicted"), backfill)
    for _ in range(3):
        ran(world, train(), 1)
    first = world.submit(train(name="first", limit_h=2))
    world.tick()
    world.submit(train(8, name="wide", limit_h=1))
    short = world.submit(train())
    assert [start.job for start in world.tick()] == ([short] if plans == "predicted" else [])
    assert world.job(first).planned_s is None
    assert world.job(short).planned_s == (HOUR if plans == "predicted" else None)
    assert world.restarted().job(short).planned_s == world.job(short).planned_s


def test_who_outlives_a_prediction_is_counted_on_for_longer_and_at_last_for_its_limit() -> None:
    world = world_of()
    for _ in range(3):
        ran(world, train(), 1)
    job = world.submit(train(8, limit_h=5))
    world.tick()
    world.start(job)
    wide = world.submit(train(8, name="wide"))
    begin = world.now
    for hours, until in ((0.99, 1.0), (1.0, 2.0), (1.99, 2.0), (2.5, 5.0), (4.0, 5.0), (5.0, 5.0)):
        world.tick_at(begin + hours * HOUR)
        promise = world.engine.cycle.promise(world.now)
        assert promise is not None
        assert (promise.job, promise.at) == (wide, begin + until * HOUR)
    told = [event.planned_s for event in world.events if isinstance(event, PredictionOutlived)]
    assert told == [2 * HOUR, None]
    assert world.job(job).limit == 5 * HOUR, "what it may is what it may"


def test_predictions_are_scored_whether_or_not_plans_count_on_them() -> None:
    for plans in (False, True):
        world = world_of(replace(PREDICTED, predicted=plans))
        for _ in range(3):
            ran(world, train(), 1)
        assert world.state.estimates.scores == {}, "nothing had been predicted"
        ran(world, train(), 3)
        ran(world, train(limit_h=None), 0.5)
        assert world.state.estimates.scores == {
            "ada": Score(
                jobs=2,
                run_s=3.5 * HOUR,
                bias_s=(2.0 - 2.5) * HOUR,
                error_s=(2.0 + 2.5) * HOUR,
                outlived=1,
                limited=1,
                limit_error_s=7 * HOUR,
            )
        }
        again = world.restarted().state.estimates
        assert again.scores == world.state.estimates.scores
        assert [(kind, [*each.came]) for kind, each in again.runs.items()] == [
            (kind, [*each.came]) for kind, each in world.state.estimates.runs.items()
        ]


def test_what_is_foretold_by_limits_and_what_is_likely() -> None:
    world = world_of(replace(PREDICTED, predicted=False))
    for _ in range(3):
        ran(world, train(8), 1)
    world.submit(train(8))
    world.tick()
    waiting = world.submit(train(8, name="next"))
    world.tick()
    latest = forecast(fork(world.engine), world.now).starts[waiting]
    likely = forecast(expecting(fork(world.engine), predicted=True), world.now).starts[waiting]
    assert (latest.at, likely.at) == (world.now + 10 * HOUR, world.now + HOUR)
    assert len(world.state.estimates.runs) == 2, "what ends on a copy is not learnt"
    assert world.state.releases[0][0] == world.now + 10 * HOUR
    assert world.job(waiting).limit < NEVER
