"""Suggestions: each starts the job, and is the smallest of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from controller.core.forecast.forecast import fork
from controller.core.forecast.smallest_change import Suggestion, suggestions
from controller.core.forecast.trial import StartTrial
from controller.core.model.inputs import job_inputs, policy_inputs
from controller.core.pipeline.pipeline import Pipeline
from tests.engine_harness import EngineHarness, default_pipeline, spec
from wire.cluster.reservation import ReservationSpec
from wire.job.gangs import Gang
from wire.job.placement.affinity import parse_term
from wire.job.placement.gpu_requirements import GpuWish, Topology
from wire.job.placement.job_affinity import parse_job_term
from wire.job.spec import JobSpec

HOUR = 3600.0


def harness_of(*nodes: Mapping[str, Any], pipeline: Pipeline | None = None) -> EngineHarness:
    """Nodes a, b, c, …, each with these facts."""
    harness = EngineHarness(pipeline or default_pipeline())
    for name, host in zip("abcd", nodes, strict=False):
        harness.join(name, **host)
    return harness


def suggestions_for(harness: EngineHarness, job: int) -> tuple[Suggestion, ...]:
    return suggestions(fork(harness.engine), job, harness.now)


def job_changes(harness: EngineHarness, job: int) -> list[str]:
    """The changes to the job itself."""
    return [each.sentence for each in suggestions_for(harness, job) if each.changes]


# Case, nodes, running jobs, the submitted job, and the smallest change that starts it.
ON_A, ON_B = {"node": "a"}, {"node": "b"}
RACKS = {"rack": "r1"}, {"rack": "r2"}
TABLE: list[tuple[str, list[dict[str, Any]], list[JobSpec], JobSpec, str]] = [
    ("fewer GPUs", [{}], [spec(4)], spec(8), "with 4 GPUs instead of 8"),
    ("as many as are free", [{}], [spec(3)], spec(8), "with 5 GPUs instead of 8"),
    (
        "several nodes",
        [{}, {}],
        [spec(4, selector=ON_A), spec(4, selector=ON_B)],
        spec(8),
        "on 2 nodes with 4 GPUs each instead of 1 node",
    ),
    (
        "not at one NUMA node",
        [{}],
        [spec(3), spec(3, gpu=GpuWish(numa="require"))],
        spec(2, gpu=GpuWish(numa="require")),
        "if its GPUs need not be at one NUMA node",
    ),
    (
        "not in one rack",
        [{"labels": RACKS[0]}, {"labels": RACKS[0]}, {"labels": RACKS[1]}, {"labels": RACKS[1]}],
        [spec(8, selector={"node": "a"}), spec(8, selector={"node": "c"})],
        spec(16, nodes=2, topology=Topology("rack")),
        "if its nodes need not lie in the same rack",
    ),
    (
        "not near",
        [{"labels": RACKS[0]}, {"labels": RACKS[1]}],
        [spec(8, selector={"node": "a"}, labels={"app": "ps"})],
        spec(4, company=(parse_job_term("app=ps on rack", 1),)),
        "if it need not run near app=ps on rack",
    ),
    (
        "on another model as well",
        [{}, {"model": "A100"}],
        [spec(8, gpu_models=("H100",))],
        spec(4, gpu_models=("H100",)),
        "if it may also run on A100",
    ),
    (
        "on smaller GPUs as well",
        [{"gpu_gib": 80}, {"gpu_gib": 40}],
        [spec(8, gpu=GpuWish(least_mib=80 * 1024))],
        spec(4, gpu=GpuWish(least_mib=80 * 1024)),
        "if it may also run on GPUs with less than 80G",
    ),
    (
        "without a label",
        [{"labels": {"disk": "nvme"}}, {}],
        [spec(8, selector={"disk": "nvme"})],
        spec(4, selector={"disk": "nvme"}),
        "if nodes need not have disk=nvme",
    ),
    (
        "without a condition",
        [{"labels": {"zone": "x"}}, {}],
        [spec(8, affinity=(parse_term("zone in x"),))],
        spec(4, affinity=(parse_term("zone in x"),)),
        "if nodes need not have zone in x",
    ),
    (
        "less memory",
        [{}],
        [spec(1, memory_mib=400 * 1024)],
        spec(1, memory_mib=256 * 1024),
        "with 112G of memory instead of 256G",
    ),
    (
        "fewer CPUs",
        [{}],
        [spec(1, cpu_milli=40_500)],
        spec(1, cpu_milli=32_000),
        "with 23 CPUs instead of 32",
    ),
    (
        "one node fewer",
        [{}, {}, {}],
        [spec(8)],
        spec(24, nodes=3, gang=Gang(min_nodes=3)),
        "on 2 nodes instead of 3, with 16 GPUs in all",
    ),
    (
        "nothing demanded of GPUs, and fewer of them",
        [{}, {"model": "A100"}],
        [spec(8, gpu_models=("H100",)), spec(6, gpu_models=("A100",))],
        spec(4, gpu_models=("H100",), selector={"node": "a"}),
        "without any requirement on nodes and GPUs except their number, and with 2 GPUs instead of 4",
    ),
]


@pytest.mark.parametrize(
    ("nodes", "running", "asked", "change"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_smallest_change_that_starts_the_job_is_suggested(
    nodes: list[dict[str, Any]], running: list[JobSpec], asked: JobSpec, change: str
) -> None:
    harness = harness_of(*nodes)
    for each in running:
        harness.submit(each)
    assert len(harness.tick()) == len(running)
    waiting = harness.submit(asked)
    assert harness.tick() == []
    found = [each for each in suggestions_for(harness, waiting) if each.changes]
    assert found[0].sentence == change
    harness.tell(job_inputs.Edit(waiting, "ada", found[0].changes))
    assert {start.job for start in harness.tick()} == {waiting}


def test_suggested_time_limit_ends_before_the_first_waiting_job_starts() -> None:
    harness = harness_of({})
    harness.submit(spec(6, time_limit_s=2 * HOUR))
    harness.tick()
    harness.submit(spec(8, time_limit_s=HOUR))
    waiting = harness.submit(spec(2, time_limit_s=4 * HOUR))
    assert harness.tick() == []
    assert job_changes(harness, waiting) == ["with a time limit of 1h59m instead of 4h00m"]


def test_suggested_time_limit_ends_before_a_reservation() -> None:
    harness = harness_of({})
    harness.tell(
        policy_inputs.Reserve(ReservationSpec("upkeep", harness.now + HOUR, HOUR, nodes=("a",)), "root")
    )
    waiting = harness.submit(spec(2, grace_s=10.0))
    assert harness.tick() == []
    assert job_changes(harness, waiting) == ["with a time limit of 59m00s instead of none"]


def test_no_suggestion_for_a_job_that_starts_anyway_or_can_never_start() -> None:
    harness = harness_of({})
    harness.submit(spec(8))
    starts = harness.submit(spec(1))
    held = harness.submit(spec(1, hold=True))
    later = harness.submit(spec(1, begin_at=harness.now + HOUR))
    assert job_changes(harness, 1) == []
    harness.tick()
    assert [job_changes(harness, job) for job in (1, starts, held, later)] == [[], [], [], []]


def test_suggestion_changes_no_state() -> None:
    harness = harness_of({})
    harness.submit(spec(4))
    harness.submit(spec(8))
    harness.tick()
    before = len(harness.events), harness.job(2).spec
    assert job_changes(harness, 2)
    assert (len(harness.events), harness.job(2).spec) == before
    assert harness.tick() == []


def test_the_number_of_copies_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = harness_of({})
    harness.submit(spec(6, time_limit_s=9 * HOUR))
    harness.tick()
    harness.submit(spec(8))
    waiting = harness.submit(spec(2))
    harness.tick()
    tried = []
    starts = StartTrial.starts
    monkeypatch.setattr("controller.core.forecast.trial.MAX_COPIES", 2)
    monkeypatch.setattr(
        StartTrial, "starts", lambda trial, *given: tried.append(trial.left) or starts(trial, *given)
    )
    assert job_changes(harness, waiting) == []
    assert [left for left in tried if left] == [2, 1]


def test_the_release_of_a_job_that_an_operator_holds_is_advised_to_operators() -> None:
    harness = harness_of({})
    held = harness.submit(spec(1, hold=True))
    assert [each.sentence for each in suggestions_for(harness, held)] == ["if it was released"]
    harness.tell(job_inputs.Hold(held, "root"))
    assert [each.sentence for each in suggestions_for(harness, held)] == ["if an operator released it"]
