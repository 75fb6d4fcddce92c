"""Backfill tries the jobs of users last that have used more than their part of the project."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.explain.why_pending import RATIONED
from controller.core.pipeline.pipeline import Pipeline
from controller.plugins.orders.fixed import FifoOrder
from controller.plugins.orders.multifactor import MultifactorOrder
from tests.engine_harness import PIPELINE, EngineHarness, spec

HOUR = 3_600.0
# Ages decide the order of the queue, so that only rationing changes the order of backfill.
POINTS = replace(PIPELINE, order=MultifactorOrder(age=10_000.0, fair_share=1.0, size=0.0))


def waiting_project(policy: Pipeline) -> tuple[EngineHarness, int, int, int]:
    """One node of 8 GPUs. Ann of project `a` has used 7 GPUs for 20 hours, bob of this project none.

    Returns the waiting jobs of ann (1 GPU) and of eve in another project (1 GPU, later), and a running job
    that holds 1 GPU. The first waiting job is bob's, of 8 GPUs, and waits for an end in 60 hours.
    """
    harness = EngineHarness(policy)
    harness.join("n1", gpus=8)
    harness.submit(spec(7, project="a", time_limit_s=80 * HOUR), "ann")
    last = harness.submit(spec(1, project="b", time_limit_s=80 * HOUR), "eve")
    harness.tick()
    harness.now += 20 * HOUR
    harness.submit(spec(8, project="a", time_limit_s=HOUR), "bob")
    harness.now += 1
    ann = harness.submit(spec(1, project="a", time_limit_s=HOUR), "ann")
    harness.now += 1
    eve = harness.submit(spec(1, project="b", time_limit_s=HOUR), "eve")
    harness.tick()
    return harness, ann, eve, last


def test_user_above_the_part_of_the_project_is_backfilled_last() -> None:
    harness, ann, eve, last = waiting_project(POINTS)
    assert RATIONED in harness.why(ann).notes
    assert RATIONED not in harness.why(eve).notes
    harness.exit(last)
    harness.tick()
    assert (harness.nodes_of(ann), harness.nodes_of(eve)) == ([], ["n1"])
    # No other job fits on the next free GPU, so it is not left idle.
    harness.exit(eve)
    harness.tick()
    assert harness.nodes_of(ann) == ["n1"]


def test_order_that_ignores_shares_does_not_ration() -> None:
    harness, ann, eve, last = waiting_project(replace(PIPELINE, order=FifoOrder()))
    harness.exit(last)
    harness.tick()
    assert (harness.nodes_of(ann), harness.nodes_of(eve)) == (["n1"], [])


@pytest.mark.parametrize(("gpus", "first"), [(5, "bob"), (4, "ann")])
def test_job_wider_than_its_projects_part_of_the_cluster_gets_no_size_points_for_a_rationed_user(
    gpus: int, first: str
) -> None:
    harness = EngineHarness(replace(PIPELINE, order=MultifactorOrder(age=0.0, fair_share=1.0, size=1_000.0)))
    harness.join("n1", gpus=8)
    harness.submit(spec(8, project="a", time_limit_s=80 * HOUR), "ann")
    harness.tick()
    harness.now += 20 * HOUR
    harness.submit(spec(8, project="b", time_limit_s=HOUR), "eve")
    # Two projects have jobs, so the part of project `a` is 4 GPUs. Ann has used more than half of this part.
    bob = harness.submit(spec(3, project="a", time_limit_s=HOUR), "bob")
    ann = harness.submit(spec(gpus, project="a", time_limit_s=HOUR), "ann")
    harness.tick()
    positions = {harness.why(job).position: name for job, name in ((bob, "bob"), (ann, "ann"))}
    size = next(each for each in harness.why(ann).receipt if each.name == "size")
    assert positions[min(positions)] == first
    assert (size.points > 0) == (first == "ann")
