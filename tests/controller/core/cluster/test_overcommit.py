"""Overcommit and classes of service: a node gives out more than it has, and starts state the limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.engine import Engine
from controller.core.model.decision.decision import Refusal
from controller.core.model.events.nodes import Overcommit
from controller.core.model.inputs.job_inputs import Submit
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.job.spec import qos_class, spec_problems


def harness_of(cpu: float = 1.0, memory: float = 1.0) -> EngineHarness:
    """A node with four CPUs and four GiB."""
    harness = EngineHarness(replace(PIPELINE, overcommit=Overcommit(cpu, memory)))
    harness.join("a", gpus=0, cpus=4, memory_gib=4)
    return harness


@pytest.mark.parametrize(
    ("cpu", "memory", "asked", "start"),
    [
        (1.0, 1.0, {"cpu_milli": 1000}, 4),
        (1.5, 1.0, {"cpu_milli": 1000, "memory_mib": 1}, 6),
        (1.5, 1.0, {"cpu_milli": 1, "memory_mib": 1024}, 4),
        (1.0, 2.0, {"cpu_milli": 1, "memory_mib": 1024}, 8),
        (0.5, 1.0, {"cpu_milli": 1000}, 2),
    ],
)
def test_overcommit_multiplies_cpus_and_memory_of_a_node(
    cpu: float, memory: float, asked: dict[str, Any], start: int
) -> None:
    harness = harness_of(cpu, memory)
    for _ in range(10):
        harness.submit(spec(**asked))
    assert len(harness.tick()) == start


def test_job_larger_than_a_node_is_accepted_only_within_its_overcommit() -> None:
    harness = harness_of(cpu=2.0)
    harness.submit(spec(cpu_milli=8000))
    assert len(harness.tick()) == 1
    refused = harness.tell(Submit(spec(cpu_milli=8001), "ada")).reply
    assert isinstance(refused, Refusal)
    assert refused.code == "never_fits"


def test_overcommit_of_a_node_changes_only_when_it_joins_again() -> None:
    harness = harness_of(cpu=2.0)
    again = harness.restarted()
    assert again.state.nodes.columns.cpu_total.tolist() == [8000]
    harness.engine = Engine(replace(harness.pipeline, overcommit=Overcommit()), harness.state)
    harness.join("a", gpus=0, cpus=4, memory_gib=4)
    assert harness.state.nodes.columns.cpu_total.tolist() == [4000]


@pytest.mark.parametrize(
    ("asked", "qos", "most"),
    [
        ({}, "guaranteed", (1000, 1024)),
        ({"cpu_limit_milli": 1000}, "guaranteed", (1000, 1024)),
        ({"cpu_limit_milli": 4000}, "burstable", (4000, 1024)),
        ({"memory_limit_mib": 4096}, "burstable", (1000, 4096)),
        ({"best_effort": True}, "best-effort", (None, None)),
    ],
)
def test_start_order_carries_the_limits_of_an_overcommitted_node(
    asked: dict[str, Any], qos: str, most: tuple[int | None, int | None]
) -> None:
    harness = harness_of()
    harness.submit(spec(**asked))
    (start,) = harness.tick()
    assert (start.most_cpu_milli, start.most_memory_mib) == most
    least = (100, 64) if qos == "best-effort" else (1000, 1024)
    assert (start.cpu_milli, start.memory_mib) == least
    assert qos_class(harness.state.jobs[1].spec) == qos


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        ({"cpu_milli": 1000, "cpu_limit_milli": 999}, "cpu_limit_milli"),
        ({"memory_mib": 1024, "memory_limit_mib": 1023}, "memory_limit_mib"),
        ({"best_effort": True, "memory_limit_mib": 2048}, "memory_limit_mib"),
    ],
)
def test_invalid_limits_are_reported(asked: dict[str, Any], where: str) -> None:
    assert [place for place, _ in spec_problems(spec(**asked))] == [where]
