"""Jobs that allow a shorter time limit (--time-min): when they start with it, and what it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.framework.interfaces import Backfill
from controller.core.model.decision.decision import Accepted
from controller.core.model.inputs import job_inputs, node_inputs, policy_inputs
from controller.core.model.time_limits import ShortLimit
from controller.plugins.backfill.kinds import Conservative, Easy, EasySjbf
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.agent.orders import Start
from wire.agent.reports import AttemptStatus
from wire.cluster.reservation import ReservationSpec
from wire.job.spec import spec_problems
from wire.names import JobState

NOW, HOUR = 1_000.0, 3_600.0
KINDS = [Easy(), EasySjbf(), Conservative()]


def busy(backfill: Backfill) -> EngineHarness:
    """Node a is half full for 3 hours, and job 2 waits for all of it."""
    harness = EngineHarness(replace(PIPELINE, backfill=backfill))
    harness.join("a")
    harness.submit(spec(4, time_limit_s=3 * HOUR))
    harness.submit(spec(8, time_limit_s=HOUR))
    harness.tick()
    harness.start(1)
    return harness


def flexible(**more: Any) -> Any:
    return spec(2, **{"time_limit_s": 8 * HOUR, "time_min_s": HOUR, **more})


@pytest.mark.parametrize("backfill", KINDS)
def test_job_starts_with_the_longest_limit_that_delays_nobody(backfill: Backfill) -> None:
    harness = busy(backfill)
    job = harness.submit(flexible(grace_s=10.0))
    [start] = harness.tick()
    assert (start.job, start.time_limit_s) == (job, 3 * HOUR - 10)
    assert harness.job(job).short == ShortLimit(3 * HOUR - 10, "job 2 is to start then")
    assert harness.job(job).expected_end == NOW + 3 * HOUR
    assert "its time limit is 2h59m instead of 8h00m (--time-min), to start earlier: job 2" in (
        harness.why(job).sentence
    )
    harness.start(job)
    harness.exit(1)
    harness.exit(job, None, signal=15, why="time_limit")
    harness.tick()
    assert harness.job(2).state is JobState.SCHEDULED


@pytest.mark.parametrize("backfill", KINDS)
def test_job_waits_if_even_its_least_limit_would_delay_another(backfill: Backfill) -> None:
    harness = busy(backfill)
    job = harness.submit(flexible(time_min_s=3 * HOUR + 1))
    assert harness.tick() == []
    assert "may start with a shorter time limit, at least 3h00m (--time-min)" in harness.why(job).notes
    assert harness.submit(flexible(time_min_s=None)) not in [start.job for start in harness.tick()]


@pytest.mark.parametrize("backfill", KINDS)
def test_job_that_fits_with_its_whole_limit_keeps_it(backfill: Backfill) -> None:
    harness = busy(backfill)
    job = harness.submit(flexible(time_limit_s=2 * HOUR))
    [start] = harness.tick()
    assert (start.job, start.time_limit_s, harness.job(job).short) == (job, 2 * HOUR, None)


@pytest.mark.parametrize("backfill", KINDS)
def test_job_starts_before_a_reservation_and_a_drain(backfill: Backfill) -> None:
    harness = EngineHarness(replace(PIPELINE, backfill=backfill))
    harness.join("a")
    harness.tell(policy_inputs.Reserve(ReservationSpec("fans", NOW + 2 * HOUR, HOUR, ("a",)), "root"))
    first = harness.submit(flexible())
    [start] = harness.tick()
    assert (start.time_limit_s, harness.job(first).short) == (
        2 * HOUR,
        ShortLimit(2 * HOUR, "reservation 'fans' begins then"),
    )
    harness.tell(node_inputs.Drain("a", "root", "", NOW + 1.5 * HOUR))
    second = harness.submit(flexible(time_limit_s=None))
    [start] = harness.tick()
    assert (start.job, start.time_limit_s) == (second, 1.5 * HOUR)


def test_two_short_jobs_do_not_delay_the_first_job_together() -> None:
    harness = EngineHarness(PIPELINE)
    harness.join("a")
    harness.join("b", gpus=4)
    harness.submit(spec(8, time_limit_s=3 * HOUR))
    harness.submit(spec(8, nodes=1, time_limit_s=HOUR))
    harness.tick()
    harness.start(1)
    jobs = [harness.submit(flexible()) for _ in range(3)]
    started = {start.job: start.time_limit_s for start in harness.tick()}
    assert started == {jobs[0]: 8 * HOUR, jobs[1]: 8 * HOUR}, "node b is of no use for job 2"


def test_short_limit_survives_a_restart_and_ends_with_the_attempt() -> None:
    harness = busy(Easy())
    job = harness.submit(flexible())
    harness.tick()
    harness.start(job)
    again = harness.restarted()
    assert again.job(job).short == harness.job(job).short
    assert again.job(job).limit == 3 * HOUR
    again.join("a", (AttemptStatus(1, 1, 101, NOW), AttemptStatus(job, 1, 103, NOW)))
    again.tell(job_inputs.Requeue(job, "ada"))
    again.exit(job, None, signal=15, why="requeued")
    assert (again.job(job).short, again.job(job).limit) == (None, 8 * HOUR)


def test_start_order_that_is_sent_again_has_the_short_limit() -> None:
    harness = busy(Easy())
    job = harness.submit(flexible())
    harness.tick()
    again = harness.restarted()
    again.join("a", (AttemptStatus(1, 1, 101, NOW),))
    [start] = [sent.frame for sent in again.sent if isinstance(sent.frame, Start)]
    assert (start.job, start.time_limit_s) == (job, 3 * HOUR)


def test_short_job_can_be_extended_to_its_own_limit() -> None:
    harness = busy(Easy())
    job = harness.submit(flexible())
    harness.tick()
    harness.start(job)
    assert isinstance(harness.tell(job_inputs.Edit(job, "bob", {"time_limit_s": 8 * HOUR})).reply, Accepted)
    assert (harness.job(job).short, harness.job(job).limit) == (None, 8 * HOUR)
    assert isinstance(harness.tell(job_inputs.Edit(job, "bob", {"name": "x"})).reply, Accepted)


def test_least_limit_is_checked() -> None:
    assert spec_problems(flexible(time_min_s=9 * HOUR)) == [
        ("time_min_s", "must not be longer than the time limit")
    ]
    assert spec_problems(flexible(time_min_s=0)) == [("time_min_s", "must be positive and at most ten years")]
