"""GPU requirements and topology: the GPUs and nodes that each job gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.explain.filter_losses import filter_losses
from controller.core.forecast.forecast import forecast, fork
from controller.core.framework.interfaces import Backfill
from controller.core.model.inputs.job_inputs import Submit
from controller.core.pipeline.pipeline import Pipeline
from controller.plugins.backfill.kinds import Conservative, Easy
from tests.engine_harness import PIPELINE, EngineHarness, default_pipeline, spec
from wire.job.placement.gpu_requirements import GpuWish, Topology
from wire.job.spec import JobSpec, spec_problems
from wire.names import JobState, Reason

BIG: dict[str, Any] = {"gpus": 8}
PAIRS: dict[str, Any] = {"gpus": 4, "numa_nodes": 2, "island": 4}
ACROSS: dict[str, Any] = {"gpus": 8, "numa_nodes": 2, "island": 2}
SMALL: dict[str, Any] = {"gpus": 2, "model": "A10", "gpu_gib": 24, "compute": "8.6"}
NEW: dict[str, Any] = {**BIG, "compute": "10.0"}
SLICED: dict[str, Any] = {"gpus": 7, "mig": "1g.10gb", "gpu_gib": 10, "island": 1}


def asking(gpus: float = 0, **asked: Any) -> JobSpec:
    return spec(gpus, gpu=GpuWish(**asked))


Held = list[tuple[str, int, int]] | None

# (case, hosts, jobs in submit order, for each job the (node, GPU, thousandths) that it holds; None: it waits)
TABLE: list[tuple[str, dict[str, dict[str, Any]], list[JobSpec], list[Held]]] = [
    ("20G of an 80G GPU are a quarter of it", {"a": BIG}, [asking(memory_mib=20_480)], [[("a", 0, 250)]]),
    ("20G are most of a 24G GPU", {"a": SMALL}, [asking(memory_mib=20_480)], [[("a", 0, 834)]]),
    (
        "shares by memory and by number share a GPU as long as it lasts",
        {"a": {"gpus": 1}},
        [spec(0.5), asking(memory_mib=40_960), spec(0.25)],
        [[("a", 0, 500)], [("a", 0, 500)], None],
    ),
    ("30G fit no 24G GPU", {"a": SMALL, "b": BIG}, [asking(memory_mib=30_720)], [[("b", 0, 375)]]),
    ("at least 40G each", {"a": SMALL, "b": BIG}, [asking(1, least_mib=40_960)], [[("b", 0, 1000)]]),
    ("compute capability 9.0", {"a": SMALL, "b": BIG}, [asking(1, compute="9.0")], [[("b", 0, 1000)]]),
    ("10.0 is newer than 9.0", {"a": BIG, "b": NEW}, [asking(1, compute="9.1")], [[("b", 0, 1000)]]),
    (
        "two MIG instances",
        {"a": BIG, "b": SLICED},
        [asking(2, mig="1g.10gb")],
        [[("b", 0, 1000), ("b", 1, 1000)]],
    ),
    (
        "an instance is no GPU",
        {"a": SLICED, "b": {"gpus": 1}},
        [spec(1), spec(1)],
        [[("b", 0, 1000)], None],
    ),
    ("nor is a share of one", {"a": SLICED, "b": {"gpus": 1}}, [spec(0.5)], [[("b", 0, 500)]]),
    (
        "NUMA demanded: three are free, but not at one NUMA node",
        {"a": PAIRS},
        [spec(1), asking(3, numa="prefer"), asking(2, numa="require")],
        [[("a", 0, 1000)], [("a", 1, 1000), ("a", 2, 1000), ("a", 3, 1000)], None],
    ),
    (
        "NUMA demanded: the node that has it, not the first",
        {"a": {"gpus": 2, "numa_nodes": 2}, "b": PAIRS},
        [asking(2, numa="require")],
        [[("b", 0, 1000), ("b", 1, 1000)]],
    ),
    (
        "NUMA preferred: rather the node that has it",
        {"a": {"gpus": 2, "numa_nodes": 2}, "b": PAIRS},
        [asking(2, numa="prefer")],
        [[("b", 0, 1000), ("b", 1, 1000)]],
    ),
    (
        "NUMA preferred: any node is better than none",
        {"a": {"gpus": 2, "numa_nodes": 2}},
        [asking(2, numa="prefer")],
        [[("a", 0, 1000), ("a", 1, 1000)]],
    ),
    (
        "NVLink demanded: a linked pair, though another GPU is as near",
        {"a": ACROSS},
        [spec(1), asking(2, nvlink="require")],
        [[("a", 0, 1000)], [("a", 2, 1000), ("a", 3, 1000)]],
    ),
    (
        "NVLink demanded: the node that has four linked",
        {"a": ACROSS, "b": BIG},
        [asking(4, nvlink="require")],
        [[("b", slot, 1000) for slot in range(4)]],
    ),
    (
        "both demanded: linked and at one NUMA node",
        {"a": {"gpus": 4, "numa_nodes": 2, "island": 4}, "b": {"gpus": 8, "numa_nodes": 2, "island": 4}},
        [asking(4, numa="require", nvlink="require")],
        [[("b", slot, 1000) for slot in range(4)]],
    ),
]  # fmt: skip


def held(harness: EngineHarness, job: int) -> Held:
    if harness.job(job).state is not JobState.SCHEDULED:
        return None
    return [
        (node, int(gpu.uuid.rsplit("-", 1)[1]), gpu.milli)
        for node, member in harness.job(job).members.items()
        for gpu in member.allocation.gpus
    ]


@pytest.mark.parametrize("pipeline", [PIPELINE, default_pipeline()], ids=["fit", "default"])
@pytest.mark.parametrize(
    ("hosts", "jobs", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_gpus_chosen_for_requirements(
    hosts: dict[str, dict[str, Any]], jobs: list[JobSpec], expected: list[Held], pipeline: Pipeline
) -> None:
    harness = EngineHarness(pipeline)
    for name, host in hosts.items():
        harness.join(name, **host)
    ids = [harness.submit(job) for job in jobs]
    harness.tick()
    assert [held(harness, job) for job in ids] == expected


RACKS = {"a": "r1", "b": "r2", "c": "r2", "d": "r3", "e": "r3", "f": "r3", "g": None}


def together(gpus: float, nodes: int, domains: int | None, prefer: bool = False, **more: Any) -> JobSpec:
    return spec(gpus, nodes=nodes, topology=Topology("rack", domains, prefer), **more)


# (story, nodes that are taken, the job, its nodes)
LIES: list[tuple[str, str, JobSpec, str]] = [
    ("the same rack, though the first two names lie in two", "", together(16, 2, 1), "bc"),
    ("three in the same rack", "", together(24, 3, 1), "def"),
    ("no rack has two free: it waits", "bef", together(16, 2, 1), ""),
    ("no rack has two free: preferred is no demand", "bef", together(16, 2, 1, prefer=True), "ac"),
    ("each in a rack of its own", "", together(24, 3, None), "abd"),
    ("a node without a rack lies in none", "bcdef", together(16, 2, None), ""),
    ("four over exactly two racks: two in each", "", together(32, 4, 2), "bcde"),
    ("as few nodes as needed, in the same rack", "", replace(spec(16), topology=Topology("rack")), "bc"),
    ("the topology of a single node is no question", "", replace(spec(8), topology=Topology("rack")), "a"),
]  # fmt: skip


def racks(pipeline: Pipeline, taken: str = "") -> EngineHarness:
    harness = EngineHarness(pipeline)
    for name, rack in RACKS.items():
        harness.join(name, labels={"rack": rack} if rack else {})
    for name in taken:
        job = harness.submit(spec(8, selector={"node": name}, time_limit_s=100.0))
        harness.tick()
        harness.start(job)
    return harness


@pytest.mark.parametrize("pipeline", [PIPELINE, default_pipeline()], ids=["fit", "default"])
@pytest.mark.parametrize(("taken", "job", "nodes"), [row[1:] for row in LIES], ids=[row[0] for row in LIES])
def test_nodes_chosen_for_topology_requests(taken: str, job: JobSpec, nodes: str, pipeline: Pipeline) -> None:
    harness = racks(pipeline, taken)
    number = harness.submit(job)
    harness.tick()
    assert "".join(harness.nodes_of(number)) == nodes


def test_topology_that_an_idle_cluster_cannot_give_is_refused() -> None:
    refusal = racks(PIPELINE).refuse(Submit(together(32, 4, 1), "ada"))
    assert (refusal.code, refusal.where) == ("never_fits", "topology")
    assert "r1, r2, r3" in refusal.hint


def test_explain_says_that_enough_nodes_fit_but_not_in_one_rack() -> None:
    harness = racks(PIPELINE, "bef")
    job = harness.submit(together(16, 2, 1))
    harness.tick()
    why = harness.engine.explain(harness.job(job), harness.now)
    assert why.reason is Reason.RESOURCES
    assert why.sentence.endswith("in the same rack; rack r1 has the most nodes that can give that now: 1")


@pytest.mark.parametrize("mode", [Easy(), Conservative()])
def test_backfill_keeps_two_nodes_of_one_rack_for_the_first(mode: Backfill) -> None:
    """r2 is free in 100 s. A long job may take any node but c: without c, r2 would not be free."""
    harness = racks(replace(PIPELINE, backfill=mode), "b")
    for name in "def":
        harness.submit(spec(8, selector={"node": name}, time_limit_s=9_000.0))
    harness.tick()
    first = harness.submit(together(16, 2, 1, priority=75))
    fill = [harness.submit(spec(8, time_limit_s=1_000.0)) for _ in range(3)]
    harness.tick()
    assert [harness.nodes_of(job) for job in fill] == [["a"], ["g"], []]
    start = forecast(fork(harness.engine), harness.now).starts[first]
    assert (start.at, start.nodes) == (harness.now + 100.0, ("b", "c"))


def test_reservation_of_one_rack_uses_nodes_that_are_free_earlier() -> None:
    """b and c become free at the same time. Only b forms a rack with a, which is free already."""
    harness = EngineHarness(replace(PIPELINE, backfill=Conservative()))
    for name, rack in {"a": "r1", "b": "r1", "c": "r2", "d": "r2"}.items():
        harness.join(name, labels={"rack": rack})
    for name, limit in {"b": 50.0, "c": 50.0, "d": 400.0}.items():
        harness.submit(spec(8, selector={"node": name}, time_limit_s=limit))
    harness.tick()
    job = harness.submit(together(16, 2, 1, time_limit_s=10.0))
    harness.tick()
    promise = harness.engine.cycle.reservations.by_job[job]
    assert (promise.starts_at, [each.node for each in promise.placement.allocations]) == (
        harness.now + 50,
        ["a", "b"],
    )


def test_filter_names_the_missing_gpu_property() -> None:
    harness = EngineHarness()
    harness.join("a", **SMALL, island=1)
    for asked, message in [
        (asking(memory_mib=30_720), "no GPU with 30G of memory"),
        (asking(1, least_mib=40_960), "no GPU of 40G or more"),
        (asking(2, nvlink="require"), "fewer than 2 GPUs, all linked by NVLink"),
        (asking(1, compute="9.0"), "no GPU of compute capability 9.0 or newer"),
        (asking(1, mig="1g.5gb"), "no MIG 1g.5gb GPU"),
    ]:  # fmt: skip
        assert not spec_problems(asked)
        part = harness.state.ask(asked, "ada").part
        (loss,), _ = filter_losses(harness.engine.placer, part, harness.state.nodes.columns)
        assert loss.message == message


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        (asking(1, memory_mib=1), "gpu.memory_mib"),
        (asking(1, mig="8g.5gb"), "gpu.mig"),
        (asking(0.5, mig="1g.5gb"), "gpu.mig"),
        (asking(1, compute="new"), "gpu.compute"),
        (asking(1, numa="maybe"), "gpu.numa"),
        (asking(0, nvlink="prefer"), "gpu"),
        (together(24, 3, 2), "topology.domains"),
        (spec(0, datasets=("a b",)), "datasets"),
    ],
)
def test_invalid_gpu_requests_are_reported(asked: JobSpec, where: str) -> None:
    assert [found for found, _ in spec_problems(asked)] == [where]
