"""Plans assume an end for jobs without a time limit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.estimates.runtime_prediction import PredictionConfig
from controller.core.model.inputs import policy_inputs
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.cluster.reservation import ReservationSpec
from wire.job.start_conditions import Restart, RestartWhen

HOUR = 3_600.0
PLANNED = replace(PIPELINE, estimating=PredictionConfig(default_s=24 * HOUR))


def harness_with_a_waiting_gang(plan: bool = True) -> tuple[EngineHarness, int]:
    """Job 1 has no time limit and holds half of one node. The gang of two whole nodes waits for it."""
    harness = EngineHarness(PLANNED if plan else PIPELINE)
    for name in ("n1", "n2"):
        harness.join(name, gpus=8)
    harness.submit(spec(4))
    harness.tick()
    gang = harness.submit(spec(16, nodes=2))
    harness.tick()
    return harness, gang


def test_job_that_outlasts_the_planned_end_does_not_pass_a_gang() -> None:
    harness, gang = harness_with_a_waiting_gang()
    short = harness.submit(spec(4, time_limit_s=20 * HOUR))
    long = harness.submit(spec(4, time_limit_s=30 * HOUR))
    unlimited = harness.submit(spec(4))
    harness.tick_at(harness.now + 1.0)
    assert harness.nodes_of(short)
    assert not harness.nodes_of(long)
    assert not harness.nodes_of(unlimited)
    assert not harness.nodes_of(gang)
    assert "jobs without a time limit end as planned" in harness.why(long).sentence


def test_without_a_planned_end_every_job_passes_the_gang() -> None:
    harness, gang = harness_with_a_waiting_gang(plan=False)
    long = harness.submit(spec(4, time_limit_s=30 * HOUR))
    harness.tick_at(harness.now + 1.0)
    assert harness.nodes_of(long)
    assert not harness.nodes_of(gang)


def test_job_that_outlives_its_planned_end_is_planned_for_twice_its_run_time() -> None:
    harness, _ = harness_with_a_waiting_gang()
    harness.tick_at(harness.now + 25 * HOUR)
    assert harness.job(1).planned_s == 50 * HOUR


def test_job_that_is_always_restarted_is_planned_to_run_without_end() -> None:
    harness = EngineHarness(PLANNED)
    for name in ("n1", "n2"):
        harness.join(name, gpus=8)
    harness.submit(spec(4, restart=Restart(RestartWhen.ALWAYS)))
    harness.tick()
    harness.submit(spec(16, nodes=2))
    harness.tick()
    long = harness.submit(spec(4, time_limit_s=30 * HOUR))
    harness.tick_at(harness.now + 1.0)
    assert harness.job(1).planned_s is None
    assert harness.nodes_of(long)


def test_gang_starts_when_the_job_without_a_time_limit_ends() -> None:
    harness, gang = harness_with_a_waiting_gang()
    harness.start(1)
    harness.exit(1)
    harness.tick()
    assert len(harness.nodes_of(gang)) == 2


def test_operators_reservation_does_not_count_on_a_planned_end() -> None:
    harness, _ = harness_with_a_waiting_gang()
    upkeep = ReservationSpec(
        name="upkeep", starts_at=harness.now + 30 * HOUR, duration_s=HOUR, nodes=tuple(harness.nodes_of(1))
    )
    refusal = harness.refuse(policy_inputs.Reserve(upkeep, "root"))
    assert "job 1 on node n1 has no time limit" in refusal.message


@pytest.mark.parametrize(("hours_ahead", "starts"), [(25, True), (23, False)])
def test_reservation_bars_a_job_that_is_planned_to_run_into_it(hours_ahead: float, starts: bool) -> None:
    harness = EngineHarness(PLANNED)
    harness.join("n1", gpus=8)
    upkeep = ReservationSpec("upkeep", harness.now + hours_ahead * HOUR, HOUR, nodes=("n1",))
    harness.tell(policy_inputs.Reserve(upkeep, "root"))
    job = harness.submit(spec(1))
    harness.tick()
    assert bool(harness.nodes_of(job)) is starts


@pytest.mark.parametrize(("hours_ahead", "starts"), [(4, True), (2, False)])
def test_reservation_counts_on_the_longest_of_the_last_runs(hours_ahead: float, starts: bool) -> None:
    harness = EngineHarness(PLANNED)
    harness.join("n1", gpus=8)
    for hours in (1, 1, 1, 1, 3):
        job = harness.submit(spec(1, name="train"))
        harness.tick()
        harness.start(job)
        harness.now += hours * HOUR
        harness.exit(job)
    upkeep = ReservationSpec("upkeep", harness.now + hours_ahead * HOUR, HOUR, nodes=("n1",))
    harness.tell(policy_inputs.Reserve(upkeep, "root"))
    job = harness.submit(spec(1, name="train"))
    harness.tick()
    assert bool(harness.nodes_of(job)) is starts
    assert starts or "no time limit and probably runs for up to 3h00m" in harness.why(job).sentence
