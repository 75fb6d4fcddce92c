"""Choices of a node by name: the same jobs, and where each strategy puts them."""

from __future__ import annotations

from typing import Any

import pytest

from controller.config import Config
from controller.config.tables.policy.scheduler import SchedulerSection
from controller.config.tables.policy.strategies import STRATEGIES
from controller.core.pipeline.pipeline import Pipeline
from controller.registry import build_pipeline
from tests.engine_harness import EngineHarness, spec

SMALL = {"cpu_milli": 1_000, "memory_mib": 1_024}
JOBS = [*(spec(1, **SMALL) for _ in range(3)), spec(0, cpu_milli=32_000, memory_mib=1_024), spec(1, **SMALL)]

# (strategy, the node of each job: four hosts with two GPUs and 64 CPUs each)
TABLE = [
    ("thrift", "aabab"),
    ("best-fit", "aabab"),
    ("least-loaded", "abcda"),
    ("round-robin", "abcda"),
    ("pack", "aabab"),
    ("spread", "abcdd"),
]


def pipeline(**section: Any) -> Pipeline:
    return build_pipeline(Config(scheduler=SchedulerSection.model_validate(section)))


def placed(harness: EngineHarness, jobs: list[Any]) -> str:
    ids = [harness.submit(job) for job in jobs]
    harness.tick()
    return "".join(node for job in ids for node in harness.nodes_of(job))


@pytest.mark.parametrize(("strategy", "nodes"), TABLE)
def test_nodes_chosen_by_each_strategy(strategy: str, nodes: str) -> None:
    harness = EngineHarness(pipeline(strategy=strategy))
    for name in "abcd":
        harness.join(name, gpus=2)
    assert placed(harness, JOBS) == nodes


def test_balanced_strategy_levels_cpu_memory_and_gpu_use() -> None:
    harness = EngineHarness(pipeline(strategy="balanced"))
    harness.join("a", gpus=2)
    harness.join("b", gpus=2)
    assert (
        placed(
            harness,
            [
                spec(2, cpu_milli=1_000, memory_mib=1_024),
                spec(0, cpu_milli=60_000, memory_mib=400 * 1024),
            ],
        )
        == "aa"
    )


def test_fragmentation_strategy_fills_a_shared_gpu_before_it_starts_another() -> None:
    harness = EngineHarness(pipeline(strategy="fragmentation"))
    for name in "ab":
        harness.join(name, gpus=2)
    jobs = [spec(0.5, selector={"node": "b"}), spec(0.5), spec(0.5)]
    assert placed(harness, jobs) == "bba"


def test_fragmentation_strategy_leaves_no_gpu_without_cpus() -> None:
    harness = EngineHarness(pipeline(strategy="fragmentation"))
    harness.join("a", gpus=2)
    harness.join("b", gpus=0)
    assert placed(harness, [spec(0, cpu_milli=60_000)]) == "b"


# (story, scorers, labels by node, the job, the node)
SCORERS: list[tuple[str, dict[str, Any], dict[str, dict[str, str]], Any, str]] = [
    ("data: where it is", {"data": 1}, {"c": {"data/mnist": ""}}, spec(1, datasets=("mnist",)), "c"),
    (
        "data: where more of it is",
        {"data": 1},
        {"b": {"data/x": ""}, "c": {"data/x": "", "data/y": ""}},
        spec(1, datasets=("x", "y")),
        "c",
    ),
    ("cost: the cheapest", {"cost": 1}, {"a": {"cost": "3"}, "c": {"cost": "0.5"}}, spec(1), "c"),
    ("cost: by another label", {"cost": {"weight": 1, "label": "eur"}}, {"b": {"eur": "0"}}, spec(1), "b"),
    ("proximity: the larger rack",
     {"proximity": 1}, {"a": {"rack": "1"}, "b": {"rack": "2"}, "c": {"rack": "2"}}, spec(1), "b"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("scorers", "labels", "job", "node"), [row[1:] for row in SCORERS], ids=[row[0] for row in SCORERS]
)
def test_scorers(scorers: Any, labels: dict[str, dict[str, str]], job: Any, node: str) -> None:
    harness = EngineHarness(pipeline(scorers=scorers))
    for name in "abc":
        harness.join(name, labels=labels.get(name, {}))
    assert placed(harness, [job]) == node


def test_proximity_scores_change_when_a_neighbour_is_allocated() -> None:
    harness = EngineHarness(pipeline(scorers={"proximity": 1}))
    for name, rack in zip("abcd", "1122", strict=True):
        harness.join(name, gpus=1, labels={"rack": rack})
    assert placed(harness, [spec(1), spec(1), spec(1), spec(1)]) == "acbd"


def test_power_strategy_wakes_no_idle_node() -> None:
    harness = EngineHarness(pipeline(scorers={"power": 1}))
    for name in "abc":
        harness.join(name)
    assert placed(harness, [spec(1, selector={"node": "c"}), spec(1), spec(8), spec(1)]) == "ccac"


def test_settings_beside_a_strategy_override_it() -> None:
    section = SchedulerSection.model_validate({"strategy": "spread", "picker": "tightest"})
    assert list(section.scorers) == ["spread", "affinity", "taints", "wiring", "company", "data"]
    assert section.picker.name == "tightest"


def test_the_weighted_strategy_has_the_stated_weights() -> None:
    weights = STRATEGIES["weighted"][0]
    assert {name: weights[name] for name in ("fit", "affinity", "load", "data", "cost")} == {
        "fit": 30,
        "affinity": 20,
        "load": 20,
        "data": 20,
        "cost": 10,
    }


def test_the_kubernetes_example_loads_and_spreads() -> None:
    from pathlib import Path

    from controller.config import load

    path = Path(__file__).parents[4] / "examples" / "kubernetes.toml"
    config = load(path)
    assert [each.weight for each in config.scheduler.scorers.values()] == [40, 30, 20, 10]
    harness = EngineHarness(build_pipeline(config))
    for name in "ab":
        harness.join(name)
    assert placed(harness, [spec(1), spec(1)]) == "ab"
