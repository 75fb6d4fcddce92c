"""`[preemption] gang_gain`: a gang preempts the last jobs on its nodes, if this is worth the lost work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.framework.interfaces import PreemptionGuards
from controller.core.model.job import Job
from tests.engine_harness import PIPELINE, EngineHarness, spec

HOUR = 3_600.0
GUARDS = PreemptionGuards(min_runtime_s=0.0, gang_gain=8.0, spare_ending_s=0.0)


def waiting_gang(
    ran_h: float, limit_h: float, gain: float = 8.0, nodes: int | None = 2, gpus: int = 1, saves: bool = False
) -> tuple[EngineHarness, Job, int]:
    """Two nodes of 8 GPUs. A job on one node has run for `ran_h` hours, and a job of 16 GPUs waits for it."""
    harness = EngineHarness(replace(PIPELINE, guards=replace(GUARDS, gang_gain=gain)))
    for name in ("n1", "n2"):
        harness.join(name, gpus=8)
    signal = "USR1" if saves else ""
    last = harness.submit(spec(gpus, time_limit_s=limit_h * HOUR, checkpoint_signal=signal))
    harness.tick()
    harness.start(last)
    harness.now += ran_h * HOUR
    gang = harness.submit(spec(16, nodes=nodes, time_limit_s=HOUR))
    harness.tick()
    return harness, harness.job(last), gang


@pytest.mark.parametrize(
    ("ran_h", "limit_h", "stopped"),
    [
        (2.0, 4.0, True),  # 15 GPUs would wait for 2 hours: 30 GPU-hours, and 2 are lost.
        (2.0, 3.0, False),  # They would wait for 1 hour: 15 GPU-hours are less than 8 x 2.
        (5.0, 7.0, False),  # 5 GPU-hours would be lost.
    ],
)
def test_gang_preempts_the_last_job_if_it_is_worth_the_lost_work(
    ran_h: float, limit_h: float, stopped: bool
) -> None:
    harness, last, gang = waiting_gang(ran_h, limit_h)
    assert (last.stopping is not None) == stopped
    if stopped:
        harness.exit(last.id)
        harness.tick()
        assert len(harness.nodes_of(gang)) == 2


def test_job_that_saves_its_state_loses_nothing() -> None:
    assert waiting_gang(5.0, 7.0, saves=True)[1].stopping is not None


def test_without_gang_gain_the_gang_waits() -> None:
    assert waiting_gang(2.0, 4.0, gain=0.0)[1].stopping is None


def test_job_on_one_node_preempts_no_job() -> None:
    harness = EngineHarness(replace(PIPELINE, guards=GUARDS))
    harness.join("n1", gpus=8)
    first = harness.submit(spec(1, time_limit_s=4 * HOUR))
    harness.tick()
    harness.start(first)
    harness.now += 2 * HOUR
    harness.submit(spec(8, time_limit_s=HOUR))
    harness.tick()
    assert harness.job(first).stopping is None


def test_project_above_its_share_preempts_no_job() -> None:
    harness = EngineHarness(replace(PIPELINE, guards=GUARDS))
    for name in ("n1", "n2"):
        harness.join(name, gpus=8)
    last = harness.submit(spec(1, project="b", time_limit_s=4 * HOUR))
    before = harness.submit(spec(8, project="a", time_limit_s=4 * HOUR))
    harness.tick()
    harness.start(last)
    harness.start(before)
    harness.now += 2 * HOUR
    harness.exit(before)
    harness.submit(spec(16, nodes=2, project="a", time_limit_s=HOUR))
    harness.tick()
    assert harness.job(last).stopping is None
