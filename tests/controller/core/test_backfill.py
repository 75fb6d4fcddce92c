"""Who may pass the first waiting job, and who may not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from controller.core.columns import Bools, Columns, Rows
from controller.core.explain import reason_of
from controller.core.inputs import Cancel, Resume
from controller.core.plugin import Backfill
from controller.core.requests import Part
from controller.core.timeline import Timeline
from tests.worlds import PIPELINE, World, spec
from wire.gangs import Gang
from wire.spec import JobSpec
from wire.words import JobState, Reason

HOUR = 3600.0


def world_of(mode: Backfill, *nodes: str, **host: int) -> World:
    world = World(replace(PIPELINE, backfill=mode))
    for name in nodes:
        world.join(name, **host)
    return world


def cpus(count: int, hours: float | None, **more: object) -> JobSpec:
    return spec(0, cpu_milli=count * 1000, time_limit_s=None if hours is None else hours * HOUR, **more)


# A machine of 8 CPUs. Running: 5 CPUs for 2 h. Waiting first: 6 CPUs. Behind it, one of these:
EASY_TABLE = [
    ("short enough to be gone in time", cpus(3, 2), True),
    ("a second too long, and nothing is spare", cpus(3, 2.001), False),
    ("long, but small enough for what the first leaves over", cpus(2, 9), True),
    ("without a limit, small enough", cpus(2, None), True),
    ("without a limit, too big", cpus(3, None), False),
    ("does not fit at all", cpus(4, 1), False),
]


@pytest.mark.parametrize(
    ("behind", "starts"), [row[1:] for row in EASY_TABLE], ids=[row[0] for row in EASY_TABLE]
)
def test_easy(behind: JobSpec, starts: bool) -> None:
    world = world_of(Backfill.EASY, "m", cpus=8, gpus=0)
    world.submit(cpus(5, 2))
    world.tick()
    first, second = world.submit(cpus(6, 5)), world.submit(behind)
    assert [start.job for start in world.tick()] == ([second] if starts else [])
    promise = world.engine.cycle.promise(world.now)
    assert promise is not None
    assert (promise.job, promise.at) == (first, world.now + 2 * HOUR)


def test_what_is_left_over_is_given_only_once() -> None:
    world = world_of(Backfill.EASY, "m", cpus=8, gpus=0)
    world.submit(cpus(5, 2))
    world.tick()
    world.submit(cpus(6, 5))
    second, third = world.submit(cpus(1, 9)), world.submit(cpus(2, 9))
    fourth = world.submit(cpus(1, 9))
    assert [start.job for start in world.tick()] == [second, fourth]
    assert third in world.state.queue


def test_a_job_that_comes_later_is_held_to_the_same_promise() -> None:
    world = world_of(Backfill.EASY, "m", cpus=8, gpus=0)
    world.submit(cpus(5, 2))
    world.submit(cpus(6, 5))
    world.tick()
    world.now += HOUR
    assert world.state.jobs[world.submit(cpus(3, 1.5))].id not in [start.job for start in world.tick()]
    short = world.submit(cpus(3, 1))
    assert [start.job for start in world.tick()] == [short]


def test_on_several_nodes_only_the_node_kept_free_is_out_of_bounds() -> None:
    """a: 8 GPUs busy for 1 h; b: 6 busy for 9 h. The first waits for a's eight; b's two are anybody's."""
    world = world_of(Backfill.EASY, "a", "b")
    for gpus, hours, node in ((8, 1, "a"), (6, 9, "b")):
        world.submit(spec(gpus, time_limit_s=hours * HOUR, selector={"node": node}))
    world.tick()
    first = world.submit(spec(8))
    long = world.submit(spec(1))
    assert [start.job for start in world.tick()] == [long]
    assert world.nodes_of(long) == ["b"]
    world.exit(1)
    assert [start.job for start in world.tick()] == [first]


def test_a_free_node_that_the_first_will_need_is_left_when_another_will_do() -> None:
    """The gang of two needs a and b in an hour; a long job goes to c although a scores as well."""
    world = world_of(Backfill.EASY, "a", "b", "c", gpus=1)
    world.submit(spec(1, time_limit_s=HOUR, selector={"node": "b"}))
    world.submit(spec(0.5, time_limit_s=9 * HOUR, selector={"node": "c"}))
    world.tick()
    world.submit(spec(2, nodes=2))
    long = world.submit(spec(0.25))
    world.tick()
    assert world.nodes_of(long) == ["c"]


def test_shortest_first_among_those_who_may_pass() -> None:
    for mode, expected in ((Backfill.EASY, 3), (Backfill.EASY_SJBF, 4)):
        world = world_of(mode, "m", cpus=8, gpus=0)
        world.submit(cpus(5, 2))
        world.submit(cpus(6, 5))
        world.tick()
        world.submit(cpus(3, 2))
        world.submit(cpus(3, 1))
        assert [start.job for start in world.tick()] == [expected]


@pytest.mark.parametrize(("mode", "started"), [(Backfill.NONE, []), (Backfill.GREEDY, [3])])
def test_nothing_passes_or_anything_does(mode: Backfill, started: list[int]) -> None:
    world = world_of(mode, "m", cpus=8, gpus=0)
    world.submit(cpus(5, 2))
    world.submit(cpus(6, 5))
    world.submit(cpus(3, 9))
    assert [start.job for start in world.tick()] == [1, *started]


def test_a_promise_nobody_can_keep_binds_nobody() -> None:
    world = world_of(Backfill.EASY, "a", "b")
    world.tell_drain("b")
    world.submit(spec(16, nodes=2))
    small = world.submit(spec(1))
    assert [start.job for start in world.tick()] == [small]


def test_why_tells_of_the_promise() -> None:
    world = world_of(Backfill.EASY, "m", cpus=8, gpus=0)
    world.submit(cpus(5, 2))
    world.submit(cpus(6, 5))
    passed_over = world.submit(cpus(3, 9))
    world.tick()
    why = world.engine.explain(world.job(passed_over), world.now)
    assert why.sentence == (
        "fits now, but may run for 9h00m and would delay job 2, which can start in 2h00m at the latest"
    )


def test_the_reason_in_a_table_tells_those_without_room_from_those_passed_over() -> None:
    world = world_of(Backfill.EASY, "a", "b")
    world.submit(spec(8, time_limit_s=HOUR))
    world.submit(spec(4, time_limit_s=2 * HOUR))
    first = world.submit(spec(16, nodes=2))
    too_long = world.submit(spec(2))
    without_room = [world.submit(spec(8, nodes=1)), world.submit(spec(8)), world.submit(spec(5))]
    world.tick()
    assert [world.job(job).state for job in (first, too_long)] == [JobState.QUEUED] * 2
    assert reason_of(world.state, world.job(too_long)) is Reason.PRIORITY
    for job in (first, *without_room):
        assert reason_of(world.state, world.job(job)) is Reason.RESOURCES
        assert world.engine.explain(world.job(job), world.now).reason is Reason.RESOURCES


@dataclass(frozen=True, slots=True)
class Alone:
    """Somebody else's filter: what reads a dataset wants a node without anybody. No plan knows of it."""

    name: ClassVar[str] = "alone"

    def keep(self, part: Part, nodes: Columns, rows: Rows) -> Bools:
        alone: Bools = nodes.cpu_free[rows] == nodes.cpu_total[rows]
        return alone

    def concerns(self, part: Part) -> bool:
        return bool(part.datasets)

    def explain(self, part: Part) -> str:
        return "not alone"


def test_who_is_refused_when_due_keeps_no_room_and_is_not_tried_again_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    filters = (*PIPELINE.filters, Alone())
    world = World(replace(PIPELINE, backfill=Backfill.CONSERVATIVE, filters=filters))
    world.join("a")
    there = world.submit(spec(1, time_limit_s=1000))
    world.tick()
    choosy = world.submit(spec(1, time_limit_s=100, datasets=("d",)))
    behind = world.submit(spec(7, time_limit_s=100))
    late = world.submit(spec(8, time_limit_s=100))
    world.tick()
    assert (world.nodes_of(choosy), world.nodes_of(behind)) == ([], ["a"])
    looked: list[float] = []
    first_start = Timeline.first_start
    monkeypatch.setattr(
        Timeline, "first_start", lambda line, *how: looked.append(how[-1]) or first_start(line, *how)
    )
    world.tick_at(world.now + 1)
    assert looked == []
    world.exit(behind)
    world.exit(there)
    world.tick()
    assert (world.nodes_of(choosy), world.nodes_of(late)) == (["a"], [])
    assert looked


def test_what_an_elastic_job_has_grown_to_is_promised_to_nobody() -> None:
    world = World(replace(PIPELINE, backfill=Backfill.CONSERVATIVE))
    for name in "ab":
        world.join(name)
    world.tell_drain("b")
    grown = world.submit(spec(16, nodes=2, gang=Gang(1, elastic=True), time_limit_s=1000))
    world.tick()
    world.start(grown)
    small = world.submit(spec(1, time_limit_s=10))
    world.tick()
    world.tell(Cancel(small, "ada"))
    world.tell(Resume("b", "root"))
    world.tick()
    assert world.nodes_of(grown) == ["a", "b"]
    other = world.submit(spec(8, time_limit_s=100))
    world.tick()
    plan = world.engine.cycle.plan
    assert plan.promises[other].start == world.now + 1000
    assert not plan.refused
