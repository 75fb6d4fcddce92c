"""The order of waiting jobs changes when jobs of a second project are submitted."""

from __future__ import annotations

from dataclasses import replace

from controller.core.forecast.forecast import fork
from controller.core.framework.order_chain import chain_orders
from controller.core.model.wait_state import WaitRules
from controller.plugins.orders.fair import FairShareOrder
from controller.plugins.orders.fixed import PriorityOrder
from tests.engine_harness import PIPELINE, EngineHarness, spec

HOUR = 3_600.0
BY_SHARE = chain_orders(PriorityOrder(), FairShareOrder())
SWITCHING = replace(PIPELINE, order_of_projects=BY_SHARE, waiting=WaitRules(gang_after_s=24 * HOUR))


def harness_with_a_busy_node() -> EngineHarness:
    """User ada of the project `default` holds all GPUs for 99 hours, and two of her jobs wait."""
    harness = EngineHarness(SWITCHING)
    harness.join("n1", gpus=8)
    harness.submit(spec(8, time_limit_s=99 * HOUR))
    harness.tick()
    harness.submit(spec(8, time_limit_s=HOUR))
    harness.submit(spec(8, time_limit_s=HOUR), "bob")
    harness.tick_at(harness.now + HOUR)
    return harness


def test_jobs_of_one_project_start_in_the_order_of_their_submits() -> None:
    harness = harness_with_a_busy_node()
    assert harness.state.queue_of(harness.job(2)).moving is None
    harness.exit(1)
    harness.tick()
    assert harness.nodes_of(2)


def test_a_second_project_makes_shares_decide() -> None:
    harness = harness_with_a_busy_node()
    other = harness.submit(spec(8, time_limit_s=HOUR, project="other"), "eve")
    harness.exit(1)
    harness.tick()
    assert harness.nodes_of(other)
    assert not harness.nodes_of(2)


def test_a_copy_of_the_engine_uses_the_same_order() -> None:
    harness = harness_with_a_busy_node()
    harness.submit(spec(8, time_limit_s=HOUR, project="other"), "eve")
    harness.tick()
    ahead = fork(harness.engine).state
    assert ahead.orders_projects
    assert ahead.queue.entry(2) == harness.state.queue.entry(2)


def test_gang_of_a_project_above_its_share_does_not_pass_the_other_projects() -> None:
    harness = EngineHarness(SWITCHING)
    for name in ("n1", "n2"):
        harness.join(name, gpus=8)
    held = [harness.submit(spec(8, time_limit_s=999 * HOUR)) for _ in range(2)]
    harness.tick()
    gang = harness.submit(spec(16, nodes=2, time_limit_s=HOUR))
    harness.tick_at(harness.now + 80 * HOUR)
    other = harness.submit(spec(8, time_limit_s=HOUR, project="other"), "eve")
    for job in held:
        harness.exit(job)
    harness.tick()
    assert harness.nodes_of(other)
    assert not harness.nodes_of(gang)
