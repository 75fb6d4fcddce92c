"""Where jobs go: small clusters, jobs in order, and the place each must get."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.model.allocation import Allocation
from controller.core.model.inputs.job_inputs import Submit
from controller.core.pipeline.pipeline import Pipeline
from controller.core.placement.placer import Placement
from tests.engine_harness import PIPELINE, EngineHarness, default_pipeline, spec
from wire.agent.orders import GpuHold
from wire.job.spec import JobSpec
from wire.names import JobState

BIG = {"gpus": 8}
NVLINK_PAIRS = {"gpus": 4, "numa_nodes": 1, "island": 2}

# (story, hosts, jobs in submit order, for each job its nodes and GPU indices; None waits)
Expected = tuple[list[str], list[int]] | None
TABLE: list[tuple[str, dict[str, dict[str, Any]], list[JobSpec], list[Expected]]] = [
    ("one GPU goes to the first name", {"b": BIG, "a": BIG}, [spec(1)], [(["a"], [0])]),
    (
        "the second joins the first: whole nodes stay free",
        {"a": BIG, "b": BIG},
        [spec(1), spec(1), spec(8)],
        [(["a"], [0]), (["a"], [1]), (["b"], list(range(8)))],
    ),
    (
        "four GPUs take one NUMA node, leaving the other whole",
        {"a": BIG},
        [spec(1), spec(4)],
        [(["a"], [0]), (["a"], [4, 5, 6, 7])],
    ),
    (
        "two GPUs fill the NUMA node that is begun",
        {"a": BIG},
        [spec(1), spec(2)],
        [(["a"], [0]), (["a"], [1, 2])],
    ),
    (
        "six GPUs cross NUMA nodes, for no single one has them",
        {"a": BIG},
        [spec(6)],
        [(["a"], [0, 1, 4, 5, 6, 7])],
    ),
    (
        "two GPUs take a linked pair rather than neighbours across islands",
        {"a": NVLINK_PAIRS},
        [spec(1), spec(2)],
        [(["a"], [0]), (["a"], [2, 3])],
    ),
    (
        "halves share one GPU",
        {"a": BIG},
        [spec(0.5), spec(0.5), spec(1)],
        [(["a"], [0]), (["a"], [0]), (["a"], [1])],
    ),
    (
        "a share takes the tightest GPU that holds it",
        {"a": {"gpus": 2}},
        [spec(0.75), spec(0.5), spec(0.25)],
        [(["a"], [0]), (["a"], [1]), (["a"], [0])],
    ),
    (
        "sixteen GPUs take two nodes when none has them",
        {"a": BIG, "b": BIG, "c": BIG},
        [spec(16)],
        [(["a", "b"], [*range(8), *range(8)])],
    ),
    (
        "two nodes are two nodes even where one would do",
        {"a": BIG, "b": BIG},
        [spec(2, nodes=2)],
        [(["a", "b"], [0, 0])],
    ),
    (
        "a gang is placed whole or not at all, and smaller jobs behind it may go",
        {"a": BIG, "b": BIG},
        [spec(1), spec(16, nodes=2), spec(1)],
        [(["a"], [0]), None, (["a"], [1])],
    ),
    (
        "the selector decides",
        {"a": BIG, "b": {**BIG, "labels": {"rack": "r2"}}},
        [spec(1, selector={"rack": "r2"})],
        [(["b"], [0])],
    ),
    (
        "the model decides, by any of its names",
        {"a": {**BIG, "model": "A100-40G"}, "b": {**BIG, "model": "NVIDIA H100 80GB"}},
        [spec(1, gpu_models=("H100",)), spec(1, gpu_models=("a100",))],
        [(["b"], [0]), (["a"], [0])],
    ),
    (
        "a job without GPUs that names a model gets a node with such GPUs",
        {"a": {**BIG, "model": "A100-40G"}, "b": {**BIG, "model": "NVIDIA H100 80GB"}, "c": {"gpus": 0}},
        [spec(0, gpu_models=("H100",)), spec(0, gpu_models=("a100",)), spec(8, gpu_models=("a100",))],
        [(["b"], []), (["a"], []), (["a"], [*range(8)])],
    ),
    (
        "higher priority starts first, whatever the submit order",
        {"a": {"gpus": 1}},
        [spec(1, priority=50), spec(1, priority=75)],
        [None, (["a"], [0])],
    ),
    (
        "CPU alone can be what is missing",
        {"a": {"cpus": 2}},
        [spec(0, cpu_milli=2000), spec(0)],
        [(["a"], []), None],
    ),
]


@pytest.mark.parametrize("pipeline", [PIPELINE, default_pipeline()], ids=["fit", "default"])
@pytest.mark.parametrize(
    ("hosts", "jobs", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_nodes_and_gpus_chosen_for_jobs(
    hosts: dict[str, dict[str, Any]], jobs: list[JobSpec], expected: list[Expected], pipeline: Pipeline
) -> None:
    harness = EngineHarness(pipeline)
    for name, host in hosts.items():
        harness.join(name, **host)
    ids = [harness.submit(job) for job in jobs]
    harness.tick()
    found = [
        (harness.nodes_of(job), harness.gpus_of(job))
        if harness.job(job).state is JobState.SCHEDULED
        else None
        for job in ids
    ]
    assert found == expected


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        (spec(9, nodes=1), "gpus"),
        (spec(40), "gpus"),
        (spec(3, nodes=3), "nodes"),
        (spec(1, gpu_models=("B200",)), ""),
        (spec(0, gpu_models=("B200",)), ""),
        (spec(1, selector={"rack": "nowhere"}), ""),
        (spec(0, cpu_milli=65_000), ""),
    ],
)
def test_a_job_that_an_idle_cluster_cannot_hold_is_refused(asked: JobSpec, where: str) -> None:
    harness = EngineHarness()
    harness.join("a")
    harness.join("b")
    refusal = harness.refuse(Submit(asked, "ada"))
    assert (refusal.code, refusal.where) == ("never_fits", where)
    assert "can never be placed" in refusal.message


def test_no_job_is_refused_as_too_large_while_a_configured_node_is_unseen() -> None:
    from controller.core.model.inputs.node_inputs import AddNode

    harness = EngineHarness()
    harness.join("a")
    harness.tell(AddNode("later"))
    assert harness.job(harness.submit(spec(16))).state is JobState.QUEUED


def test_room_that_appears_is_used() -> None:
    harness = EngineHarness()
    harness.join("a", gpus=1)
    first, second = harness.submit(spec(1)), harness.submit(spec(1))
    harness.tick()
    assert harness.tick() == []
    harness.start(first)
    harness.exit(first)
    assert [start.job for start in harness.tick()] == [second]


@pytest.mark.parametrize(("gpus", "quality"), [(4, 150), (8, 120), (16, 50), (0, 150)])
def test_quality(gpus: int, quality: int) -> None:
    harness = EngineHarness()
    for name in "ab":
        harness.join(name)
    job = harness.submit(spec(gpus))
    harness.tick()
    assert harness.job(job).quality == quality


@pytest.mark.parametrize(("gpus", "free"), [((2, 3), True), ((1, 2), False), ((8, 9), False)])
def test_a_reserved_start_is_taken_only_if_its_reserved_gpus_are_free(
    gpus: tuple[int, ...], free: bool
) -> None:
    harness = EngineHarness()
    harness.join("a")
    harness.submit(spec(2))
    harness.tick()
    assert harness.gpus_of(1) == [0, 1]
    holds = tuple(GpuHold(f"GPU-a-{index}", 1_000) for index in gpus)
    place = Placement((Allocation("a", 1_000, 1_024, holds),), 100)
    assert harness.engine.placer.still_fits(harness.state.ask(spec(2), "ada"), place) is free


def test_a_query_chooses_the_same_nodes_and_leaves_the_scores() -> None:
    harness = EngineHarness(PIPELINE)
    for name in "abc":
        harness.join(name)
    placer, ask = harness.engine.cycle.placer, harness.state.ask(spec(2), "ada")
    assert placer.find(ask) is not None
    harness.submit(spec(4))
    harness.tick()
    scores = placer.ranking(ask.part)._scores.copy()
    query = placer.for_query()
    found = query.find(ask)
    assert (placer.ranking(ask.part)._scores == scores).all()
    assert (query.ranking(ask.part)._scores != scores).any()
    assert found == placer.find(ask)
