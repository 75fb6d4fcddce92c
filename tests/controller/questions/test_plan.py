"""The plan agrees with the engine: no node of a plan holds more GPUs than it has."""

from __future__ import annotations

import pytest

from controller.core.engine import Engine
from controller.core.model.job import NEVER
from controller.questions.engine_copy.deadline import Deadline
from controller.questions.engine_copy.engine_copy import EngineCopy
from controller.questions.plan import MOST_POINTS, _free_gpus, plan
from tests.controller.questions.clusters import NODES, POLICIES, Cluster
from wire.api.forecasts import CERTAIN, LIKELY, LIMIT, Plan, PlanEntry, PlanPoint
from wire.names import JobState

DAY_S = 86_400.0


def last_plan(cluster: Cluster, horizon_s: float = DAY_S) -> Plan:
    copy = EngineCopy(cluster.engine, cluster.config, 7, cluster.now, Deadline.after(60.0))
    *_, found = plan(copy, horizon_s)
    return found


def gpus_of(engine: Engine) -> dict[str, int]:
    return {node.name: len(node.facts.gpus) for node in engine.state.nodes}


@pytest.mark.parametrize("policy", POLICIES)
def test_no_node_of_a_plan_holds_more_gpus_than_it_has(policy: str) -> None:
    started = 0
    for seed in range(3):
        cluster = Cluster(policy, seed)
        for _ in range(40):
            cluster.landing()
        have = gpus_of(cluster.engine)
        running = {job.id for job in cluster.engine.state.live() if job.unended}
        waiting = {
            job.id for job in cluster.engine.state.live() if job.state is JobState.QUEUED and not job.held
        }
        found = last_plan(cluster)
        assert found.as_of == 7
        assert found.complete
        assert {each.job for each in found.entries if each.certainty == CERTAIN} == running
        planned = {each.job for each in found.entries}
        assert planned <= running | waiting
        assert found.without_start == len(waiting - planned)
        sure = [each for each in found.entries if each.certainty != LIKELY]
        for moment in {each.starts_at for each in sure}:
            for node in NODES:
                held = sum(
                    each.gpus / len(each.nodes)
                    for each in sure
                    if node in each.nodes and each.starts_at <= moment < (each.ends_at or NEVER)
                )
                assert held <= have.get(node, 0) + 1e-6, (seed, moment, node)
        started += sum(each.certainty == LIMIT for each in found.entries)
        if all(each.certainty != LIKELY for each in found.entries):
            assert all(-1e-6 <= point.gpus_free <= found.gpus for point in found.free)
    assert started, "some jobs of the plans wait now"


def test_curve_of_free_gpus_is_exact_and_short() -> None:
    def entry(job: int, gpus: float, begin: float, end: float | None) -> PlanEntry:
        return PlanEntry(job, str(job), "", "ada", "a", "q", gpus, ("a",), begin, end)

    entries = [entry(1, 3, -50.0, 10.0), entry(2, 4, 10.0, None), entry(3, 1, 20.0, 30.0)]
    curve = _free_gpus(entries, 8, 0.0, 100.0)
    assert curve == (PlanPoint(0.0, 5), PlanPoint(10.0, 4), PlanPoint(20.0, 3), PlanPoint(30.0, 4))
    many = [entry(number, 1, float(number), number + 0.5) for number in range(1_000)]
    curve = _free_gpus(many, 8, 0.0, 1_000.0)
    assert len(curve) == MOST_POINTS
    assert {point.gpus_free for point in curve} == {7.5}
