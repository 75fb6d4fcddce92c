"""The what-if question of machine pools: which waiting jobs would start on nodes that do not exist yet."""

from __future__ import annotations

from dataclasses import replace

from controller.config import Config
from controller.core.cluster.hypothetical_nodes import HypotheticalNodes
from controller.core.model.inputs import job_inputs
from controller.core.pipeline.pipeline import Pipeline
from controller.engines.pools.scale_out import Demand
from controller.questions.engine_copy.deadline import Deadline
from controller.questions.engine_copy.engine_copy import EngineCopy
from controller.questions.pool_demand import NO_DEMAND, pool_demand
from tests.engine_harness import PIPELINE, EngineHarness, facts, spec
from wire.job.placement.affinity import Effect, Taint, Toleration

TAINT = Taint("engine", Effect.NO_SCHEDULE, "burst")


def nodes(
    gpus: int = 8, ready_in_s: float = 300.0, most: int = 4, *, tainted: bool = False
) -> HypotheticalNodes:
    taints = (TAINT,) if tainted else ()
    return HypotheticalNodes(facts("vm", gpus), {"zone": "north"}, taints, ready_in_s, most)


def demand(
    harness: EngineHarness, *asked: HypotheticalNodes, pending: tuple[HypotheticalNodes, ...] = ()
) -> tuple[Demand, ...]:
    copy = EngineCopy(harness.engine, Config(), 7, harness.now, Deadline.after(60.0), 1.0)
    before = len(harness.state.queue)
    [found] = pool_demand(copy, pending, asked)
    assert len(harness.state.queue) == before
    return found


PIPELINE_WITH_POOL = replace(PIPELINE, pool_nodes=(nodes(),))


def full_cluster(pipeline: Pipeline = PIPELINE) -> EngineHarness:
    """One node whose 8 GPUs are in use for an hour."""
    harness = EngineHarness(pipeline)
    harness.join("gpu01", gpus=8)
    harness.submit(spec(8, time_limit_s=3_600.0))
    harness.tick()
    return harness


def test_a_node_is_needed_only_if_a_waiting_job_would_start_on_it() -> None:
    harness = full_cluster()
    assert demand(harness, nodes()) == (NO_DEMAND,)
    harness.submit(spec(4, time_limit_s=600.0, project="vision"))
    harness.submit(spec(4, time_limit_s=600.0))
    harness.tick()
    assert demand(harness, nodes(), nodes(2)) == (Demand(1, 2, "vision"), NO_DEMAND)


def test_a_job_that_starts_before_the_node_is_ready_needs_no_node() -> None:
    harness = full_cluster()
    harness.submit(spec(4, time_limit_s=600.0))
    harness.tick()
    harness.now += 3_400.0
    assert demand(harness, nodes(ready_in_s=300.0), nodes(ready_in_s=100.0)) == (
        NO_DEMAND,
        Demand(1, 1, "default"),
    )


def test_a_held_job_and_a_job_that_does_not_tolerate_the_engine_need_no_node() -> None:
    harness = full_cluster()
    job = harness.submit(spec(4, time_limit_s=600.0))
    harness.tick()
    assert demand(harness, nodes(tainted=True)) == (NO_DEMAND,)
    assert demand(harness, nodes()) != (NO_DEMAND,)
    harness.tell(job_inputs.Hold(job, "ada"))
    assert demand(harness, nodes()) == (NO_DEMAND,)


def test_pending_nodes_count_first() -> None:
    harness = full_cluster()
    for _ in range(2):
        harness.submit(spec(8, time_limit_s=600.0))
    harness.tick()
    assert demand(harness, nodes()) == (Demand(2, 2, "default"),)
    assert demand(harness, nodes(), pending=(nodes(),)) == (Demand(1, 1, "default"),)
    assert demand(harness, nodes(), pending=(nodes(), nodes())) == (NO_DEMAND,)


def test_a_gang_needs_all_its_nodes_or_none() -> None:
    harness = full_cluster(PIPELINE_WITH_POOL)
    harness.submit(spec(24, nodes=3, time_limit_s=600.0))
    harness.tick()
    assert demand(harness, nodes(most=2), nodes(most=4)) == (NO_DEMAND, Demand(3, 1, "default"))


def test_a_job_that_fits_only_on_nodes_of_a_pool_is_accepted() -> None:
    harness = EngineHarness(replace(PIPELINE, pool_nodes=(nodes(most=3, tainted=True),)))
    harness.join("gpu01", gpus=8)
    ask = spec(24, nodes=3, tolerations=(Toleration("engine", "burst"),), selector={"zone": "north"})
    assert harness.submit(ask)
    assert harness.refuse(job_inputs.Submit(replace(ask, gpus=32, nodes=4), "ada")).code == "never_fits"
    assert harness.refuse(job_inputs.Submit(replace(ask, tolerations=()), "ada")).code == "never_fits"
