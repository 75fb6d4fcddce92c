"""The version of a lane: when it changes, and that it stays while the lane has the same jobs."""

from __future__ import annotations

import pytest

from controller.core.model.inputs import job_inputs
from controller.core.model.inputs.input import Input
from controller.core.queue.queue import Lane
from tests.engine_harness import EngineHarness, spec
from wire.job.start_conditions import Dependency, Until

COMMANDS: dict[str, Input] = {
    "time limit": job_inputs.Edit(3, "root", {"time_limit_s": 60.0}),
    "priority": job_inputs.Edit(3, "root", {"priority": 80}),
    "project": job_inputs.Edit(3, "root", {"project": "vision"}),
    "hold": job_inputs.Hold(3, "root"),
    "cancel": job_inputs.Cancel(3, "root"),
    "inherited priority": job_inputs.Submit(spec(8, priority=90, after=(Dependency(Until.OK, "3"),)), "ada"),
}
"""Commands that change job 3, which waits in a lane with job 2."""


def _waiting() -> tuple[EngineHarness, Lane]:
    """A full node, and two waiting jobs in one lane."""
    harness = EngineHarness()
    harness.join("n1", gpus=8)
    for _ in range(3):
        harness.submit(spec(8, time_limit_s=3_600.0))
    harness.tick()
    lane = harness.state.queue.lane(3)
    assert lane is not None
    assert list(lane.ranks) == [2, 3]
    return harness, lane


@pytest.mark.parametrize("name", COMMANDS)
def test_version_of_a_lane_changes_with_its_jobs(name: str) -> None:
    harness, lane = _waiting()
    before = lane.version
    harness.tell(COMMANDS[name])
    assert lane.version > before


def test_version_of_a_lane_stays_while_no_job_of_the_lane_changes() -> None:
    harness, lane = _waiting()
    before = lane.version
    harness.submit(spec(4))
    harness.tick()
    assert lane.version == before
