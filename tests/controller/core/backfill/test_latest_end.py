"""The latest end of a running job includes its grace, and every plan counts on that end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.forecast.forecast import forecast, fork
from controller.core.framework.interfaces import Backfill, PreemptionGuards
from controller.core.model.inputs import job_inputs, policy_inputs
from controller.plugins.backfill.kinds import Conservative, Easy
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.cluster.reservation import ReservationSpec

HOUR = 3_600.0


def one_node(backfill: Backfill = Easy()) -> EngineHarness:
    harness = EngineHarness(replace(PIPELINE, backfill=backfill, guards=PreemptionGuards(grace_s=60.0)))
    harness.join("n1")
    return harness


@pytest.mark.parametrize("backfill", [Easy(), Conservative()])
def test_the_reservation_counts_the_grace_of_the_running_job(backfill: Backfill) -> None:
    harness = one_node(backfill)
    harness.submit(spec(8, time_limit_s=HOUR, grace_s=300.0))
    harness.tick()
    waiting = harness.submit(spec(8, time_limit_s=HOUR))
    harness.tick()
    latest = harness.now + HOUR + 300.0
    assert forecast(fork(harness.engine), harness.now).starts[waiting].at == latest
    if backfill == Easy():
        reserved = harness.engine.cycle.first_reservation(harness.now)
        assert reserved is not None
        assert (reserved.job, reserved.starts_at) == (waiting, latest)
    else:
        assert harness.engine.cycle.reservations.by_job[waiting].starts_at == latest


@pytest.mark.parametrize("backfill", [Easy(), Conservative()])
@pytest.mark.parametrize(("grace", "starts"), [(0.0, True), (1.0, False)])
def test_a_backfilled_job_must_be_gone_with_its_grace(backfill: Backfill, grace: float, starts: bool) -> None:
    harness = one_node(backfill)
    harness.submit(spec(4, time_limit_s=HOUR))
    harness.tick()
    harness.submit(spec(8, time_limit_s=HOUR))
    passing = harness.submit(spec(4, time_limit_s=HOUR, grace_s=grace))
    assert [start.job for start in harness.tick()] == [passing] * starts


@pytest.mark.parametrize("seconds", [20.0, 50.0])
def test_a_reservation_holds_while_the_members_of_a_gang_end_one_after_the_other(seconds: float) -> None:
    """Between the two ends a later job that fits on the first node would delay the reserved start."""
    harness = EngineHarness(replace(PIPELINE, backfill=Conservative()))
    harness.join("n1")
    harness.join("n2")
    ending = harness.submit(spec(16, nodes=2, time_limit_s=60.0, grace_s=0.0))
    harness.tick()
    harness.start(ending)
    reserved = harness.submit(spec(16, nodes=2, time_limit_s=HOUR))
    later = harness.submit(spec(8, time_limit_s=seconds, grace_s=0.0))
    harness.tick()
    first, second = harness.nodes_of(ending)
    harness.now += 60.2
    harness.exit(ending, node=first)
    assert harness.tick() == []
    harness.now += 0.4
    harness.exit(ending, node=second)
    assert {start.job for start in harness.tick()} == {reserved}
    assert not harness.job(later).attempt


def test_the_limit_runs_from_the_start_of_the_processes() -> None:
    """A node that pulls an image for five minutes keeps its place for five minutes longer."""
    harness = one_node()
    running = harness.submit(spec(8, time_limit_s=HOUR))
    harness.tick()
    waiting = harness.submit(spec(8, time_limit_s=HOUR))
    harness.now += 300.0
    harness.start(running)
    assert forecast(fork(harness.engine), harness.now).starts[waiting].at == harness.now + HOUR
    assert harness.restarted().state.releases == harness.state.releases


def test_a_preempted_job_is_gone_after_checkpoint_and_grace() -> None:
    harness = one_node()
    running = harness.submit(
        spec(8, time_limit_s=HOUR, grace_s=30.0, checkpoint_signal="USR1", checkpoint_s=90.0)
    )
    harness.tick()
    harness.start(running)
    waiting = harness.submit(spec(8, priority=75, time_limit_s=HOUR))
    harness.tell(job_inputs.Preempt(running, "root"))
    assert harness.job(running).expected_end == harness.now + 150.0  # 90s to save, then the 60s of the table
    assert forecast(fork(harness.engine), harness.now).starts[waiting].at == harness.now + 150.0


def test_a_reservation_is_refused_on_a_node_whose_job_may_use_its_grace_in_it() -> None:
    harness = one_node()
    harness.submit(spec(8, time_limit_s=HOUR, grace_s=60.0))
    harness.tick()
    asked = ReservationSpec("upkeep", harness.now + HOUR, HOUR, nodes=("n1",))
    assert "may run 1m00s into it" in harness.refuse(policy_inputs.Reserve(asked, "root")).message
