"""A job on several nodes gets GPUs of one model, unless its spec allows different ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from controller.core.framework.interfaces import Backfill, PreemptionGuards
from controller.core.model.inputs import job_inputs
from controller.core.model.request import request_of
from controller.plugins.backfill.kinds import Conservative, Easy
from controller.plugins.preemption.by_priority import PriorityStrategy
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.job.gangs import Gang
from wire.job.placement.gpu_requirements import Topology
from wire.job.spec import JobSpec

A100, H100, V100 = "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-16GB"
MIXED = Gang(mixed_models=True)
MODES = [Easy(), Conservative()]


def harness_of(*models: str, mode: Backfill = Easy(), **more: object) -> EngineHarness:
    """Nodes a, b, c and so on with eight GPUs each, of these models."""
    harness = EngineHarness(replace(PIPELINE, backfill=mode, **more))
    for name, model in zip("abcdefgh", models, strict=False):
        harness.join(name, model=model, labels={"rack": "r1" if name in "abcd" else "r2"})
    return harness


def pair(nodes: int = 2, **more: object) -> JobSpec:
    return spec(8 * nodes, nodes=nodes, **more)


def place(harness: EngineHarness, asked: JobSpec) -> str:
    """Where the job is after a pass."""
    job = harness.submit(asked)
    harness.tick()
    return "".join(harness.nodes_of(job))


# Case, GPU models of nodes a, b, c ..., the gang, and the nodes that it gets.
PLACES: list[tuple[str, Sequence[str], JobSpec, str]] = [
    ("the model that has two", [H100, A100, A100], pair(), "bc"),
    ("both have two: the first by name", [H100, A100, H100, A100], pair(), "bd"),
    ("the one that is asked for", [A100, H100, A100, H100], pair(gpu_models=("H100",)), "bd"),
    ("one of several that will do", [A100, H100, V100, V100, H100], pair(gpu_models=("H100", "A100")), "be"),
    ("any, if it says so", [H100, A100], pair(gang=MIXED), "ab"),
    ("without a number of nodes", [H100, A100, A100], spec(16), "bc"),
    ("in one rack as well", [A100, H100, A100, H100, A100, A100], pair(topology=Topology("rack")), "ac"),
    ("a single node of any model", [H100, A100], spec(8), "a"),
    ("nodes without GPUs are all alike", [H100, A100], spec(0, nodes=2), "ab"),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("models", "asked", "nodes"), [row[1:] for row in PLACES], ids=[row[0] for row in PLACES]
)
def test_nodes_chosen_for_a_gang_of_one_gpu_model(
    models: Sequence[str], asked: JobSpec, nodes: str, mode: Backfill
) -> None:
    assert place(harness_of(*models, mode=mode), asked) == nodes


def test_a_gang_of_one_model_that_no_cluster_has_is_refused_with_the_flag() -> None:
    refusal = harness_of(H100, A100).refuse(job_inputs.Submit(pair(), "ada"))
    assert "of one GPU model" in refusal.message
    assert "--mixed-models" in refusal.hint


@pytest.mark.parametrize(
    ("asked", "message", "hint"),
    [
        (
            spec(24),
            "it needs 24 GPUs of one GPU model",
            f"A job can get at most 16 GPUs: 16 {H100} on 2 nodes, 8 {A100} on 1 node; with --mixed-models "
            "24 on 3 nodes. Ask for at most 16 GPUs, or add --mixed-models.",
        ),
        (
            spec(48),
            "48 GPUs",
            f"A job can get at most 16 GPUs: 16 {H100} on 2 nodes, 8 {A100} on 1 node; with --mixed-models "
            "24 on 3 nodes. Ask for at most 16 GPUs.",
        ),
        (
            spec(48, gang=MIXED),
            "48 GPUs",
            f"A job can get at most 24 GPUs: 16 {H100} on 2 nodes, 8 {A100} on 1 node; with --mixed-models "
            "24 on 3 nodes. Ask for at most 24 GPUs.",
        ),
        (
            spec(9, nodes=1, gpu_models=("A100",)),
            "fewer than 9 A100 GPUs",
            f"A job can get at most 8 GPUs on 1 node: 8 {A100} on 1 node. Ask for at most 8 GPUs.",
        ),
    ],
)
def test_a_request_for_more_gpus_than_exist_names_the_largest_job(
    asked: JobSpec, message: str, hint: str
) -> None:
    refusal = harness_of(H100, A100, H100).refuse(job_inputs.Submit(asked, "ada"))
    assert refusal.where == "gpus"
    assert message in refusal.message
    assert refusal.hint == hint


@pytest.mark.parametrize("mode", MODES)
def test_a_gang_waits_for_nodes_of_one_model_and_the_reason_names_it(mode: Backfill) -> None:
    harness = harness_of(H100, A100, A100, H100, mode=mode)
    busy = [
        harness.submit(spec(8, nodes=1, gpu_models=(model,), time_limit_s=100)) for model in ("A100", "H100")
    ]
    harness.tick()
    assert sorted(harness.nodes_of(job)[0] for job in busy) == ["a", "b"]
    job = harness.submit(pair(time_limit_s=100))
    assert harness.tick() == []
    why = harness.why(job)
    assert "of one GPU model" in why.sentence
    assert f"{A100} 1 node, {H100} 1 node" in why.sentence
    long = harness.submit(spec(8, nodes=1, time_limit_s=3_600))
    harness.tick()
    first = harness.nodes_of(long)
    assert len(first) <= 1  # it may take the model that the reservation does not need
    for each in busy:
        harness.exit(each)
    harness.tick()
    nodes = harness.nodes_of(job)
    assert nodes in (["a", "d"], ["b", "c"])
    assert not set(nodes) & set(first)


@pytest.mark.parametrize("mode", MODES)
def test_a_partial_gang_is_of_one_model_too(mode: Backfill) -> None:
    harness = harness_of(H100, A100, H100, A100, H100, mode=mode)
    assert place(harness, pair(3, gang=Gang(min_nodes=2))) == "ace"
    assert place(harness, pair(2, gang=Gang(min_nodes=1))) == "bd"
    other = harness_of(H100, A100, H100, A100, H100, mode=mode)
    assert place(other, spec(8, nodes=1, gpu_models=("H100",))) == "a"
    assert place(other, pair(3, gang=Gang(min_nodes=2))) == "bd"


def test_an_elastic_job_grows_on_its_own_model() -> None:
    harness = harness_of(A100, H100, A100)
    busy = [harness.submit(spec(8, nodes=1, gpu_models=("A100",))) for _ in range(2)]
    harness.tick()
    harness.exit(busy[0])
    job = harness.submit(pair(2, gang=Gang(1, elastic=True), gpu_models=("A100", "H100")))
    harness.tick()
    [at] = harness.nodes_of(job)
    harness.start(job)
    harness.exit(busy[1])
    harness.tick()
    models = {A100: ["a", "c"], H100: ["b"]}
    assert set(harness.nodes_of(job)) == set(next(nodes for nodes in models.values() if at in nodes))


def test_preemption_makes_room_on_nodes_of_one_model() -> None:
    guards = PreemptionGuards(min_runtime_s=0.0)
    harness = harness_of(H100, A100, H100, A100, strategies=(PriorityStrategy(),), guards=guards)
    for _ in range(4):
        job = harness.submit(spec(8, nodes=1, priority=25))
        harness.tick()
        harness.start(job)
        harness.now += 600.0 * len(harness.nodes_of(job)[0])
    harness.now += 3_600
    harness.submit(pair(priority=75))
    harness.tick()
    stopped = sorted(node for node, _ in harness.stops())
    assert stopped in (["a", "c"], ["b", "d"])


def test_only_jobs_on_several_nodes_with_gpus_are_bound_to_one_model() -> None:
    asked = [spec(1), spec(8, nodes=1), spec(0, nodes=2), pair(gang=MIXED), pair(), spec(16)]
    assert [request_of(each).one_model for each in asked] == [False, False, False, False, True, True]
