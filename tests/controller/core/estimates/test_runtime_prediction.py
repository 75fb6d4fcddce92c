"""Run time predictions: which runs they learn from, how backfill uses them, and how they are scored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.estimates.runtime_prediction import (
    MAX_RUNS,
    MAX_RUNS_OF_ARRAY,
    PredictionConfig,
    PredictionScore,
    RunHistory,
)
from controller.core.estimates.similar_jobs import command_key, stem_of
from controller.core.forecast.forecast import forecast, fork, with_run_times
from controller.core.framework.interfaces import Backfill
from controller.core.model.events.attempts import PredictionOutlived
from controller.core.model.inputs import job_inputs
from controller.core.model.job import NEVER
from controller.core.model.rows import NoteRow
from controller.core.state.note_rows import load_notes
from controller.core.state.state import State
from controller.plugins.backfill.kinds import Conservative, Easy, EasySjbf
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.codec import dumps
from wire.job.spec import JobSpec
from wire.names import JobState

HOUR = 3_600.0
PREDICTED = PredictionConfig(predicted=True, quantile=0.9, least=3)


def harness_of(estimating: PredictionConfig = PREDICTED, backfill: Backfill = Easy()) -> EngineHarness:
    """A machine of eight GPUs."""
    harness = EngineHarness(replace(PIPELINE, estimating=estimating, backfill=backfill))
    harness.join("m")
    return harness


def train(gpus: float = 4, limit_h: float | None = 10, **more: object) -> JobSpec:
    limit = None if limit_h is None else limit_h * HOUR
    return spec(gpus, **{"name": "train", "time_limit_s": limit, **more})


def ran(
    harness: EngineHarness, asked: JobSpec, hours: float, user: str = "ada", code: int = 0, why: str = ""
) -> int:
    """A job that ran alone for these hours."""
    job = harness.submit(asked, user)
    harness.tick()
    harness.start(job)
    harness.now += hours * HOUR
    harness.exit(job, code, why=why)
    return job


def predicted(harness: EngineHarness, asked: JobSpec, user: str = "ada") -> float | None:
    """In hours."""
    job = harness.job(harness.submit(asked, user))
    found = harness.engine.predicted(job)
    harness.tell(job_inputs.Cancel(job.id, "ada"))
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
def test_number_at_the_end_of_a_job_name_is_ignored(name: str, stem: str) -> None:
    assert stem_of(name) == stem


TRAIN = "python train.py --model small"


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("python train.py --model small --lr 0.1 --seed 1", False),
        ("python train.py --model large", False),
        ("python eval.py --model small", False),
        ("python train.py --model small ", False),
        ("python train.py --model small", True),
    ],
)
def test_command_with_other_words_is_another_command(other: str, same: bool) -> None:
    assert (command_key(tuple(TRAIN.split(" "))) == command_key(tuple(other.split(" ")))) == same


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("train --lr 0.1 --seed 7", "train --lr 1e-4 --seed -12", True),
        ("train --out runs/exp-17", "train --out runs/exp-9", True),
        ("train lr=.5 seed42", "train lr=3 seed7", True),
        ("train --run 3f2a9c1b77", "train --run 0011223344", True),
        ("train resnet50", "train resnet101", False),
        ("train 7b", "train 70b", False),
        ("train facade", "train decade", False),
    ],
)
def test_numbers_that_stand_alone_do_not_make_another_command(one: str, other: str, same: bool) -> None:
    assert (command_key(tuple(one.split())) == command_key(tuple(other.split()))) == same


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
def test_runs_that_count_as_similar(asked: JobSpec, user: str, hours: float | None) -> None:
    harness = harness_of()
    for length in (1, 3, 2):
        ran(harness, train(), length)
    assert predicted(harness, asked, user) == hours


def test_prediction_needs_three_runs_and_uses_the_configured_quantile() -> None:
    harness = harness_of(PredictionConfig(True, 0.5, 3))
    ran(harness, train(), 1)
    ran(harness, train(), 2)
    assert predicted(harness, train()) is None
    ran(harness, train(), 9)
    assert predicted(harness, train()) == 2.0


def test_ends_that_predictions_learn_from() -> None:
    """A failed or timed-out run shows the job's run time; a cancelled run does not."""
    harness = harness_of(PredictionConfig(True, 0.9, 1))
    job = harness.submit(train())
    harness.tick()
    harness.start(job)
    harness.tell(job_inputs.Cancel(job, "ada"))
    harness.exit(job, None, signal=15, why="cancelled")
    assert harness.job(job).state is JobState.CANCELLED
    ran(harness, train(), 1, code=1, why="launch_failed")
    assert predicted(harness, train()) is None
    ran(harness, train(), 2, code=1)
    assert predicted(harness, train()) == 2.0
    ran(harness, train(), 10, why="time_limit")
    assert predicted(harness, train()) == 10.0


def test_only_the_last_runs_count() -> None:
    runs = RunHistory()
    for number in range(MAX_RUNS + 8):
        runs.learn(float(number), number)
    assert runs.quantile(1.0) == MAX_RUNS + 7
    assert runs.quantile(0.01) == 8


def test_a_history_keeps_few_runs_of_one_array() -> None:
    runs = RunHistory()
    for number in range(MAX_RUNS):
        runs.learn(1.0, number)
    for number in range(20):
        runs.learn(100.0 + number, MAX_RUNS + number, array=7)
    runs.learn(5.0, 99, array=8)
    kept = [100.0 + number for number in range(20)][-MAX_RUNS_OF_ARRAY:]
    assert runs.recent == [1.0] * (MAX_RUNS - MAX_RUNS_OF_ARRAY - 1) + kept + [5.0]


@pytest.mark.parametrize(("count", "enough"), [(8, False), (9, True), (MAX_RUNS, True)])
def test_runs_needed_for_a_quantile(count: int, enough: bool) -> None:
    """The longest of 8 runs is exceeded with a probability of 1/9, the longest of 9 with 1/10."""
    assert RunHistory(0.0, [(1.0, None)] * count).reaches(0.9) == enough


def test_elements_of_an_array_are_predicted_from_the_same_array() -> None:
    """The first nine elements are predicted from earlier runs of the name, the next from the array itself."""
    harness = harness_of()
    for _ in range(3):
        ran(harness, train(1), 1)
    harness.submit_unchecked(train(1, array="0-15%1"))
    first = min(number for number, job in harness.state.jobs.items() if job.array is not None)
    found = []
    for element in range(first, first + 10):
        found.append(harness.engine.predicted(harness.job(element)))
        harness.tick()
        harness.start(element)
        harness.now += (3 if element % 2 else 2) * HOUR
        harness.exit(element)
    assert found[0] == HOUR
    assert found[9] == 3 * HOUR
    assert ("ada", "", str(first)) in harness.state.estimates.runs
    assert [
        (kind, each.recent, each.arrays) for kind, each in harness.restarted().state.estimates.runs.items()
    ] == [(kind, each.recent, each.arrays) for kind, each in harness.state.estimates.runs.items()]


def test_runs_of_the_same_command_are_preferred() -> None:
    harness = harness_of()
    small, large = (replace(train(), command=("train.py", "--model", size)) for size in ("small", "large"))
    for _ in range(3):
        ran(harness, small, 1)
        ran(harness, large, 5)
    assert predicted(harness, small) == 1.0
    assert predicted(harness, large) == 5.0
    assert predicted(harness, replace(train(), command=("eval.py",))) == 5.0, (
        "the runs of all commands of this name"
    )
    again = harness.restarted()
    assert again.state.estimates.runs.keys() == harness.state.estimates.runs.keys()


def test_rows_of_earlier_versions_still_load() -> None:
    """A row had the key (user, name, size), and one number for each run."""
    state = State(PIPELINE.order)
    load_notes(state, [NoteRow("runs", '["ada","train","4g"]', dumps([50.0, HOUR, 2 * HOUR, 3 * HOUR]))])
    assert state.estimates.runs["ada", "train", "4g"].recent == [HOUR, 2 * HOUR, 3 * HOUR]
    harness = harness_of()
    harness.state.estimates = state.estimates
    assert predicted(harness, train()) == 3.0


@pytest.mark.parametrize("backfill", [Easy(), EasySjbf(), Conservative()])
@pytest.mark.parametrize("plans", ["limit", "predicted"])
def test_a_job_predicted_to_be_short_is_backfilled(backfill: Backfill, plans: str) -> None:
    """4 GPUs run for 2 h, 8 are wanted next; `train` may run for 10 h, and has always been done in 1 h."""
    harness = harness_of(replace(PREDICTED, predicted=plans == "predicted"), backfill)
    for _ in range(3):
        ran(harness, train(), 1)
    first = harness.submit(train(name="first", limit_h=2))
    harness.tick()
    harness.submit(train(8, name="wide", limit_h=1))
    short = harness.submit(train())
    assert [start.job for start in harness.tick()] == ([short] if plans == "predicted" else [])
    assert harness.job(first).planned_s is None
    assert harness.job(short).planned_s == (HOUR if plans == "predicted" else None)
    assert harness.restarted().job(short).planned_s == harness.job(short).planned_s


def test_an_outlived_prediction_is_extended_and_moves_no_reservation() -> None:
    harness = harness_of()
    for _ in range(3):
        ran(harness, train(), 1)
    job = harness.submit(train(8, limit_h=5))
    harness.tick()
    harness.start(job)
    wide = harness.submit(train(8, name="wide"))
    begin = harness.now
    for hours in (0.99, 1.0, 1.99, 2.5, 4.0, 5.0):
        harness.tick_at(begin + hours * HOUR)
        promise = harness.engine.cycle.first_reservation(harness.now)
        assert promise is not None
        assert (promise.job, promise.starts_at) == (wide, begin + 5 * HOUR)
    planned = [event.planned_s for event in harness.events if isinstance(event, PredictionOutlived)]
    assert planned == [2 * HOUR, None]
    assert harness.job(job).limit == 5 * HOUR, "what it may is what it may"


def test_predictions_are_scored_whether_or_not_they_are_used_for_planning() -> None:
    for plans in (False, True):
        harness = harness_of(replace(PREDICTED, predicted=plans))
        for _ in range(3):
            ran(harness, train(), 1)
        assert harness.state.estimates.scores == {}, "nothing had been predicted"
        ran(harness, train(), 3)
        ran(harness, train(limit_h=None), 0.5)
        assert harness.state.estimates.scores == {
            "ada": PredictionScore(
                jobs=2,
                run_s=3.5 * HOUR,
                bias_s=(2.0 - 2.5) * HOUR,
                error_s=(2.0 + 2.5) * HOUR,
                outlived=1,
                limited=1,
                limit_error_s=7 * HOUR,
            )
        }
        again = harness.restarted().state.estimates
        assert again.scores == harness.state.estimates.scores
        assert [(kind, [*each.recent]) for kind, each in again.runs.items()] == [
            (kind, [*each.recent]) for kind, each in harness.state.estimates.runs.items()
        ]


def test_forecasts_by_limit_and_by_prediction() -> None:
    harness = harness_of(replace(PREDICTED, predicted=False))
    for _ in range(3):
        ran(harness, train(8), 1)
    harness.submit(train(8))
    harness.tick()
    waiting = harness.submit(train(8, name="next"))
    harness.tick()
    latest = forecast(fork(harness.engine), harness.now).starts[waiting]
    likely = forecast(with_run_times(fork(harness.engine), predicted=True), harness.now).starts[waiting]
    assert (latest.at, likely.at) == (harness.now + 10 * HOUR, harness.now + HOUR)
    assert len(harness.state.estimates.runs) == 3, "what ends on a copy is not learnt"
    assert harness.state.releases[0][0] == harness.now + 10 * HOUR
    assert harness.job(waiting).limit < NEVER
