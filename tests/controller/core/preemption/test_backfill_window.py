"""The strategy `window`: backfilled jobs end when the run time is over that backfill relied on."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from controller.api.views.event_sentences import sentence
from controller.core.accounting.cluster_accounting import BACKFILL_WINDOW, ClusterAccounting
from controller.core.estimates.runtime_prediction import PredictionConfig
from controller.core.framework.interfaces import PreemptionGuards
from controller.core.model.events.attempts import EndWarned, JobPreempted
from controller.core.model.events.event import Event
from controller.core.model.events.kinds import body_of, kind_of
from controller.core.model.events.nominations import PreemptionPlanned
from controller.core.model.time_limits import TimeLimitRules
from controller.plugins.preemption.backfill_window import WindowStrategy
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.agent.orders import Note
from wire.job.spec import JobSpec
from wire.names import JobState, Reason

HOUR = 3_600.0


def harness_of(*, predicted: bool = True, ends: bool = True) -> EngineHarness:
    """One node of 8 GPUs. Three runs of `short` have taken an hour each."""
    harness = EngineHarness(
        replace(
            PIPELINE,
            estimating=PredictionConfig(predicted=predicted, quantile=0.9, least=3),
            strategies=(WindowStrategy(),) if ends else (),
            guards=PreemptionGuards(min_runtime_s=0.0, cooldown_s=0.0),
            limits=TimeLimitRules(ends_backfilled=ends),
        )
    )
    harness.join("a", gpus=8)
    for _ in range(3):
        job = started(harness, short())
        harness.now += HOUR
        harness.exit(job)
    return harness


def short(**more: object) -> JobSpec:
    return spec(4, **{"name": "short", "time_limit_s": 10 * HOUR, **more})


def started(harness: EngineHarness, asked: JobSpec) -> int:
    job = harness.submit(asked)
    harness.tick()
    assert harness.job(job).state is JobState.SCHEDULED
    harness.start(job)
    return job


def told(event: Event) -> str:
    return sentence(kind_of(event), json.loads(body_of(event)))


def scene(harness: EngineHarness) -> tuple[int, int, int]:
    """(a long job on four GPUs, a waiting job of 8 GPUs, a job that is backfilled on the other four)."""
    before = started(harness, spec(4, name="long", time_limit_s=2 * HOUR))
    waiting = harness.submit(spec(8, name="gang", time_limit_s=HOUR))
    harness.tick_at(harness.now + 60)
    return before, waiting, started(harness, short())


def test_a_job_is_preempted_after_its_predicted_run_time_and_its_owner_was_warned() -> None:
    harness = harness_of()
    before, waiting, backfilled = scene(harness)
    start = harness.now
    harness.tick_at(start + HOUR - 361)
    assert not any(isinstance(event, EndWarned) for event in harness.events)
    harness.tick_at(start + HOUR - 360)
    [warned] = [event for event in harness.events if isinstance(event, EndWarned)]
    assert (warned.job, warned.ends_at, warned.reason) == (backfilled, start + HOUR, Reason.PREEMPTED)
    assert told(warned).startswith(f"job {backfilled} may be told to stop in 6m00s")
    [note] = [sent.frame.text for sent in harness.sent if isinstance(sent.frame, Note)]
    assert note.startswith("it may be preempted in 6m00s: its predicted run time is over then")
    harness.tick_at(start + HOUR - 1)
    assert not any(isinstance(event, PreemptionPlanned) for event in harness.events)
    harness.exit(before)
    harness.tick_at(start + HOUR + 1)
    [plan] = [event for event in harness.events if isinstance(event, PreemptionPlanned)]
    assert (plan.job, [each.job for each in plan.victims], plan.strategy) == (waiting, [backfilled], "window")
    assert "(its backfill window has closed)" in told(plan)
    harness.exit(backfilled, None, signal=15, why="preempted")
    [ended] = [event for event in harness.events if isinstance(event, JobPreempted)]
    assert ended.by == f"job {waiting} (its backfill window has closed)"
    assert ended.gpu_hours == pytest.approx(4.0, abs=0.01)
    accounting = ClusterAccounting()
    accounting.observe(harness.state, (ended,), harness.now)
    assert dict(accounting.periods.at(harness.now).lost) == {BACKFILL_WINDOW: ended.gpu_hours}
    harness.tick()
    assert harness.job(waiting).state is JobState.SCHEDULED
    assert harness.job(backfilled).state is JobState.QUEUED
    assert not harness.job(backfilled).outlived, "its next attempt has a window of its own"


def test_jobs_that_started_before_the_waiting_one_go_on() -> None:
    harness = harness_of()
    first = started(harness, short())
    harness.now += 60
    waiting = harness.submit(spec(8, name="gang", time_limit_s=HOUR))
    for hours in (0.5, 0.95, 1.0, 1.5, 3.0):
        harness.tick_at(harness.now + hours * HOUR)
    assert harness.job(first).state is JobState.RUNNING
    assert harness.job(first).outlived
    assert harness.job(waiting).state is JobState.QUEUED
    assert not any(isinstance(event, EndWarned | PreemptionPlanned) for event in harness.events)


@pytest.mark.parametrize("setting", [{"predicted": False}, {"ends": False}])
def test_nothing_ends_without_predictions_or_without_the_strategy(setting: dict[str, bool]) -> None:
    harness = harness_of(**setting)
    before = started(harness, spec(4, name="long", time_limit_s=12 * HOUR))
    harness.submit(spec(8, name="gang", time_limit_s=HOUR))
    harness.tick_at(harness.now + 60)
    backfilled = started(harness, short())
    start = harness.now
    harness.tick_at(start + HOUR - 360)
    harness.exit(before)
    harness.tick_at(start + 2 * HOUR)
    assert harness.job(backfilled).state is JobState.RUNNING
    assert not any(isinstance(event, EndWarned | PreemptionPlanned) for event in harness.events)


def test_a_restart_knows_the_job_that_has_outlived_its_window() -> None:
    harness = harness_of()
    _, _, backfilled = scene(harness)
    harness.tick_at(harness.now + HOUR + 1)
    assert harness.restarted().job(backfilled).outlived
