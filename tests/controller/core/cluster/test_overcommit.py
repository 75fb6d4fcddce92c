"""Overcommit and classes of service: more is given out than there is, and starts say what may be used."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.engine import Engine
from controller.core.model.events import Overcommit
from controller.core.model.inputs import Refusal, Submit
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.job.spec import qos_class, spec_problems


def harness(cpu: float = 1.0, memory: float = 1.0) -> EngineHarness:
    """A node with four CPUs and four GiB."""
    there = EngineHarness(replace(PIPELINE, overcommit=Overcommit(cpu, memory)))
    there.join("a", gpus=0, cpus=4, memory_gib=4)
    return there


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
def test_so_many_times_over(cpu: float, memory: float, asked: dict[str, Any], start: int) -> None:
    there = harness(cpu, memory)
    for _ in range(10):
        there.submit(spec(**asked))
    assert len(there.tick()) == start


def test_what_fits_only_because_of_it_is_taken_and_what_never_fits_is_not() -> None:
    there = harness(cpu=2.0)
    there.submit(spec(cpu_milli=8000))
    assert len(there.tick()) == 1
    refused = there.tell(Submit(spec(cpu_milli=8001), "ada")).reply
    assert isinstance(refused, Refusal)
    assert refused.code == "never_fits"


def test_it_is_part_of_the_node_until_the_node_joins_under_another() -> None:
    there = harness(cpu=2.0)
    again = there.restarted()
    assert again.state.nodes.columns.cpu_total.tolist() == [8000]
    there.engine = Engine(replace(there.pipeline, overcommit=Overcommit()), there.state)
    there.join("a", gpus=0, cpus=4, memory_gib=4)
    assert there.state.nodes.columns.cpu_total.tolist() == [4000]


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
def test_what_a_start_allows(asked: dict[str, Any], qos: str, most: tuple[int | None, int | None]) -> None:
    there = harness()
    there.submit(spec(**asked))
    (start,) = there.tick()
    assert (start.most_cpu_milli, start.most_memory_mib) == most
    least = (100, 64) if qos == "best-effort" else (1000, 1024)
    assert (start.cpu_milli, start.memory_mib) == least
    assert qos_class(there.state.jobs[1].spec) == qos


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        ({"cpu_milli": 1000, "cpu_limit_milli": 999}, "cpu_limit_milli"),
        ({"memory_mib": 1024, "memory_limit_mib": 1023}, "memory_limit_mib"),
        ({"best_effort": True, "memory_limit_mib": 2048}, "memory_limit_mib"),
    ],
)
def test_limits_that_mean_nothing(asked: dict[str, Any], where: str) -> None:
    assert [place for place, _ in spec_problems(spec(**asked))] == [where]
