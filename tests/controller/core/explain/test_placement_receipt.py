"""The placement receipt: the points of the nodes when a running job was placed."""

from __future__ import annotations

import random
from dataclasses import replace

from controller.core.explain.node_scores import node_scores
from controller.core.framework.interfaces import WeightedScorer
from controller.core.model.inputs import job_inputs
from controller.plugins.scorers.resource_use import PackScorer
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.api.reasons import NodeScore

PACKED = replace(PIPELINE, scorers=(WeightedScorer(PackScorer(), 10.0),))


def points_of(nodes: tuple[NodeScore, ...]) -> dict[str, float]:
    return {each.node: each.points for each in nodes}


def test_receipts_have_the_points_that_the_scorers_gave_at_each_placement() -> None:
    rng, harness = random.Random(7), EngineHarness(PACKED)
    for number in range(6):
        harness.join(f"n{number}")
    rated: dict[int, dict[str, float]] = {}
    running: list[int] = []
    for _ in range(80):
        harness.now += 10
        if running and rng.random() < 0.3:
            harness.exit(running.pop(rng.randrange(len(running))))
            harness.tick()
            continue
        job = harness.submit(spec(rng.choice((2, 4, 6)), nodes=rng.choice((None, 1, 2))))
        before = points_of(
            node_scores(harness.engine.profile_cycles.of(harness.job(job)).placer, harness.job(job))
        )
        harness.tick()
        if not harness.nodes_of(job):
            harness.tell(job_inputs.Cancel(job, "root"))
            continue
        harness.start(job)
        running.append(job)
        rated[job] = before
    for job in running:
        found = harness.engine.placement_receipt(harness.job(job))
        assert {each.node for each in found if each.chosen} == set(harness.nodes_of(job))
        assert points_of(found) == rated[job]
    restarted = harness.restarted()  # No agent is connected yet, so only the nodes of the job are rated.
    for job in running:
        points = points_of(restarted.engine.placement_receipt(restarted.job(job)))
        assert points == {node: rated[job][node] for node in harness.nodes_of(job)}
    assert len(running) > 5
    assert any(len({*rated[job].values()}) > 1 for job in running), "the scorers preferred some nodes"


def test_the_receipt_leaves_the_state_as_it_was() -> None:
    harness = EngineHarness(PACKED)
    harness.join("a")
    harness.join("b")
    first, second = harness.submit(spec(2)), harness.submit(spec(2))
    harness.tick()
    free = harness.state.nodes.columns.gpu_free.copy()
    [chosen, other] = harness.engine.placement_receipt(harness.job(first))
    assert (chosen.chosen, other.chosen, chosen.points) == (True, False, other.points)
    [chosen, other] = harness.engine.placement_receipt(harness.job(second))
    assert chosen.points > other.points
    assert (harness.state.nodes.columns.gpu_free == free).all()
