"""Scratch is allocated like memory: which jobs fit, wait, or get a reservation. Each node has 100 GiB."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.forecast.forecast import fork
from controller.core.forecast.smallest_change import suggestions
from controller.core.framework.interfaces import Backfill, PreemptionGuards
from controller.core.model.events.nominations import PreemptionPlanned
from controller.core.model.inputs import job_inputs
from controller.plugins.backfill.kinds import Conservative, Easy
from controller.plugins.preemption.by_priority import PriorityStrategy
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.agent.orders import Start
from wire.job.spec import JobSpec, spec_problems
from wire.names import JobState, Reason

BACKFILLS = [Easy(), Conservative()]


def harness_of(nodes: int = 1, **more: Any) -> EngineHarness:
    made = EngineHarness(replace(PIPELINE, **more))
    for number in range(nodes):
        made.join(f"n{number}")
    return made


def wants(gib: int, minutes: float | None = None, **more: Any) -> JobSpec:
    limit = None if minutes is None else 60.0 * minutes
    return spec(more.pop("gpus", 0), scratch_mib=gib * 1024, time_limit_s=limit, grace_s=0.0, **more)


# (case, nodes, jobs in submit order, indices of the jobs that start at once)
TABLE: list[tuple[str, int, list[JobSpec], list[int]]] = [
    ("as long as there is some", 1, [wants(60), wants(40), wants(1)], [0, 1]),
    ("a job without scratch passes", 1, [wants(100), wants(1), wants(0)], [0, 2]),
    ("on each node of a job", 2, [wants(60, nodes=2), wants(40), wants(40), wants(40)], [0, 1, 2]),
    ("where most of it is left", 2, [wants(60), wants(60), wants(60)], [0, 1]),
    (
        "a job that ends in time passes",
        1,
        [wants(60, minutes=60), wants(80), wants(40, minutes=60)],
        [0, 2],
    ),
    (
        "a job that ends later does not pass",
        1,
        [wants(60, minutes=60), wants(80), wants(40, minutes=61)],
        [0],
    ),
    (
        "unless there is enough for both",
        1,
        [wants(60, minutes=60), wants(50), wants(40, minutes=61)],
        [0, 2],
    ),
    (
        "also beside GPUs",
        1,
        [wants(60, gpus=4, minutes=60), wants(80, gpus=2), wants(40, gpus=1, minutes=61), wants(0, gpus=1)],
        [0, 3],
    ),
]


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize(("story", "nodes", "jobs", "first"), TABLE, ids=[row[0] for row in TABLE])
def test_jobs_that_start_with_their_scratch(
    backfill: Backfill, story: str, nodes: int, jobs: list[JobSpec], first: list[int]
) -> None:
    harness = harness_of(nodes, backfill=backfill)
    ids = [harness.submit(job) for job in jobs]
    begun = {start.job for _ in range(2) for start in harness.tick()}
    assert sorted(begun) == [ids[at] for at in first], story


def test_waiting_reason_names_missing_scratch() -> None:
    harness = harness_of()
    harness.submit(wants(80))
    second = harness.submit(wants(40))
    harness.tick()
    why = harness.why(second)
    assert why.reason is Reason.RESOURCES
    assert "40G of scratch" in why.sentence
    [loss] = why.losses
    assert loss.message.endswith("less than 40G of scratch free")
    [eased] = [each for each in suggestions(fork(harness.engine), second, harness.now) if each.changes]
    assert eased.sentence == "with 20G of scratch instead of 40G"


def test_scratch_beyond_every_node_is_refused_at_submit() -> None:
    harness = harness_of()
    refused = harness.refuse(job_inputs.Submit(wants(101), "ada"))
    assert (refused.code, "101G of scratch" in refused.message) == ("never_fits", True)
    old = EngineHarness()
    old.join("old", scratch_gib=0)  # an agent that does not know of it
    assert old.refuse(job_inputs.Submit(wants(1), "ada")).code == "never_fits"
    old.submit(wants(0))
    assert len(old.tick()) == 1


def test_scratch_is_in_the_start_order_and_survives_a_restart() -> None:
    harness = harness_of()
    job = harness.submit(wants(60))
    [start] = harness.tick()
    assert isinstance(start, Start)
    assert start.scratch_mib == 60 * 1024
    again = harness.restarted()
    again.join("n0", attempts=())
    assert again.state.nodes.columns.scratch_free.tolist() == [40 * 1024]
    again.start(job)
    again.exit(job, code=None, signal=15, why="scratch_exceeded: it filled more")
    assert (again.job(job).state, again.job(job).reason) == (JobState.FAILED, Reason.SCRATCH_EXCEEDED)
    assert again.state.nodes.columns.scratch_free.tolist() == [100 * 1024]


def test_preemption_frees_scratch() -> None:
    guards = PreemptionGuards(min_runtime_s=0.0)
    harness = harness_of(strategies=(PriorityStrategy(),), guards=guards)
    jobs = [harness.submit(wants(gib, priority=10)) for gib in (30, 50, 10)]
    harness.tick()
    for job in jobs:
        harness.start(job)
    high = harness.submit(wants(60, priority=90))
    harness.tick()
    [plan] = [event for event in harness.events if isinstance(event, PreemptionPlanned)]
    assert [victim.job for victim in plan.victims] == [jobs[1]]
    late = harness.submit(wants(20, priority=95))  # scratch kept for the nomination stays reserved
    assert harness.tick() == []
    harness.exit(jobs[1], code=None, signal=15, why="preempted")
    assert [start.job for start in harness.tick()] == [high]
    assert harness.job(late).state is JobState.QUEUED


@pytest.mark.parametrize("mib", [-1, 1 << 41])
def test_invalid_scratch_amounts_are_refused(mib: int) -> None:
    assert [where for where, _ in spec_problems(spec(scratch_mib=mib))] == ["scratch_mib"]
