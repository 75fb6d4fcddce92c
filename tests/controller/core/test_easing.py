"""The smallest change that would start a job now: told only if it does, and the smallest there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core import inputs
from controller.core.easing import Eased, Trial, easings
from controller.core.forecast import fork
from controller.core.inputs import Accepted
from controller.core.plugin import Backfill, Pipeline
from controller.plugins.orders.fair import Fair
from controller.plugins.preemption.priority import Priority
from tests.worlds import World, default_pipeline, spec
from wire.affinity import term_of
from wire.company import job_term_of
from wire.gangs import Gang
from wire.gpuwish import GpuWish, Topology
from wire.quota import Limits, Quota
from wire.reservation import ReservationSpec
from wire.spec import JobSpec
from wire.words import JobState

HOUR = 3600.0


def world_of(*nodes: Mapping[str, Any], pipeline: Pipeline | None = None) -> World:
    """Nodes a, b, c, …; each with what is said of it."""
    world = World(pipeline or default_pipeline())
    for name, host in zip("abcd", nodes, strict=False):
        world.join(name, **host)
    return world


def eased(world: World, job: int) -> tuple[Eased, ...]:
    return easings(fork(world.engine), job, world.now)


def told(world: World, job: int) -> list[str]:
    return [each.sentence for each in eased(world, job)]


# What runs, on which nodes; what is asked for; the smallest change.
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
        spec(4, company=(job_term_of("app=ps on rack", 1),)),
        "if it need not run near app=ps on rack",
    ),
    (
        "on another model as well",
        [{}, {"model": "A100"}],
        [spec(8, gpu_models=("H100",))],
        spec(4, gpu_models=("H100",)),
        "on A100, too",
    ),
    (
        "on smaller GPUs as well",
        [{"gpu_gib": 80}, {"gpu_gib": 40}],
        [spec(8, gpu=GpuWish(least_mib=80 * 1024))],
        spec(4, gpu=GpuWish(least_mib=80 * 1024)),
        "on GPUs with less than 80G, too",
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
        [spec(8, affinity=(term_of("zone in x"),))],
        spec(4, affinity=(term_of("zone in x"),)),
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
        "without anything it demands of nodes and GPUs but their number, and with 2 GPUs instead of 4",
    ),
]


@pytest.mark.parametrize(
    ("nodes", "running", "asked", "change"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_the_smallest_change(
    nodes: list[dict[str, Any]], running: list[JobSpec], asked: JobSpec, change: str
) -> None:
    world = world_of(*nodes)
    for each in running:
        world.submit(each)
    assert len(world.tick()) == len(running)
    waiting = world.submit(asked)
    assert world.tick() == []
    found = eased(world, waiting)
    assert found[0].sentence == change
    world.tell(inputs.Edit(waiting, "ada", found[0].changes))
    assert {start.job for start in world.tick()} == {waiting}


def test_a_limit_short_enough_to_be_over_before_the_first_starts() -> None:
    world = world_of({})
    world.submit(spec(6, time_limit_s=2 * HOUR))
    world.tick()
    world.submit(spec(8, time_limit_s=HOUR))
    waiting = world.submit(spec(2, time_limit_s=4 * HOUR))
    assert world.tick() == []
    assert told(world, waiting) == ["with a time limit of 2h00m instead of 4h00m"]


def test_a_limit_short_enough_for_what_comes() -> None:
    world = world_of({})
    world.tell(inputs.Reserve(ReservationSpec("upkeep", world.now + HOUR, HOUR, nodes=("a",)), "root"))
    waiting = world.submit(spec(2))
    assert world.tick() == []
    assert told(world, waiting) == ["with a time limit of 45m00s instead of none"]


def test_nothing_is_told_to_who_starts_anyway_or_cannot() -> None:
    world = world_of({})
    world.submit(spec(8))
    starts = world.submit(spec(1))
    held = world.submit(spec(1, hold=True))
    later = world.submit(spec(1, begin_at=world.now + HOUR))
    assert told(world, 1) == []
    world.tick()
    assert [told(world, job) for job in (1, starts, held, later)] == [[], [], [], []]


def test_asking_changes_nothing() -> None:
    world = world_of({})
    world.submit(spec(4))
    world.submit(spec(8))
    world.tick()
    before = len(world.events), world.job(2).spec
    assert told(world, 2)
    assert (len(world.events), world.job(2).spec) == before
    assert world.tick() == []


def test_only_so_many_copies_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of({})
    world.submit(spec(6, time_limit_s=9 * HOUR))
    world.tick()
    world.submit(spec(8))
    waiting = world.submit(spec(2))
    world.tick()
    tried = []
    starts = Trial.starts
    monkeypatch.setattr("controller.core.easing.MOST_TRIED", 2)
    monkeypatch.setattr(Trial, "starts", lambda trial, spec: tried.append(trial.left) or starts(trial, spec))
    assert told(world, waiting) == []
    assert [left for left in tried if left] == [2, 1]


PIPELINES = [
    replace(default_pipeline(), backfill=mode)
    for mode in (Backfill.EASY, Backfill.CONSERVATIVE, Backfill.AGGRESSIVE, Backfill.NONE)
] + [replace(default_pipeline(), strategies=(Priority(),)), replace(default_pipeline(), order=Fair())]
JOBS = st.builds(
    spec,
    gpus=st.sampled_from([0, 0.5, 1, 2, 4, 6, 8]),
    cpu_milli=st.sampled_from([1_000, 30_000]),
    memory_mib=st.sampled_from([1_024, 300 * 1_024]),
    priority=st.sampled_from([25, 50, 75]),
    time_limit_s=st.sampled_from([None, HOUR, 5 * HOUR]),
    gpu=st.sampled_from([None, None]),
    labels=st.sampled_from([{}, {"app": "x"}]),
    company=st.sampled_from([(), (job_term_of("app=x on rack", 1),), (job_term_of("app=x on node", None),)]),
    selector=st.sampled_from([{}, {"rack": "r1"}]),
) | st.builds(
    spec,
    gpus=st.sampled_from([8, 16]),
    nodes=st.just(2),
    topology=st.sampled_from([None, Topology("rack")]),
    gang=st.sampled_from([Gang(), Gang(min_nodes=1), Gang(min_nodes=2, assembly_s=60.0)]),
)


@settings(max_examples=60, deadline=None)
@given(
    pipeline=st.sampled_from(PIPELINES),
    jobs=st.lists(JOBS, min_size=2, max_size=14),
    ended=st.lists(st.integers(0, 13), max_size=4),
    limit=st.sampled_from([None, None, 6, 12]),
    which=st.integers(0, 13),
)
def test_what_is_told_starts(
    pipeline: Pipeline, jobs: list[JobSpec], ended: list[int], limit: int | None, which: int
) -> None:
    """Whatever runs and waits: the change is accepted, and the job starts in the very next cycle."""
    world = world_of(
        {"labels": RACKS[0]}, {"labels": RACKS[1]}, {"labels": RACKS[1], "model": "A100"}, pipeline=pipeline
    )
    ids = [world.submit(each, "abc"[at % 3]) for at, each in enumerate(jobs)]
    if limit is not None:
        world.tell(inputs.SetQuota("user", "a", Quota(Limits(gpus=limit)), "root"))
    world.tick()
    for job in ids:
        world.start(job)
    world.now += 600
    for job in {ids[at % len(ids)] for at in ended}:
        if world.job(job).state is JobState.RUNNING:
            world.exit(job)
    world.tick()
    waiting = [job for job in ids if world.job(job).state is JobState.QUEUED]
    if not waiting:
        return
    asked = waiting[which % len(waiting)]
    for each in eased(world, asked):
        copy = fork(world.engine)
        assert isinstance(copy.handle(inputs.Edit(asked, "ada", each.changes), world.now).reply, Accepted)
    found = eased(world, asked)
    if found:
        change = found[which % len(found)]
        world.tell(inputs.Edit(asked, "ada", change.changes))
        world.tick()
        assert world.job(asked).state is not JobState.QUEUED, change
