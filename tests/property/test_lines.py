"""Nodes looked at together start a job when they would if each were looked at by itself."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.bits import bits_of, rows_in
from controller.core.book import Promise
from controller.core.events import Allocation
from controller.core.jobs import NEVER
from controller.core.lines import Lines
from controller.core.needs import needs_of
from controller.core.placement import Place
from controller.core.requests import Part, ask_of
from controller.core.room import room_of
from controller.core.timeline import Timeline
from tests.worlds import PIPELINE, World, spec
from wire.frames import GpuHold

CPUS = 4
NODES = (0, 0, 0, 0, 0, 2)
"""Their GPUs: all but the last have none."""
ROWS = st.sets(st.integers(0, len(NODES) - 1), min_size=1)
MOMENTS = st.integers(0, 12).map(float)
LENGTHS = st.sampled_from([1.0, 2.0, 3.0, 7.0, NEVER])
PARTS = st.builds(
    lambda cpus, gpus: ask_of(spec(gpus, cpu_milli=1000 * cpus, memory_mib=0)).part,
    st.integers(1, CPUS),
    st.sampled_from([0, 0, 0, 1, 2]),
)


@dataclass(frozen=True)
class Taken:
    """Somebody takes this many CPUs, and a GPU where there are any."""

    rows: set[int]
    cpus: int
    start: float
    length: float
    forgotten: bool
    """Are lines asked to forget what is over then?"""


TAKEN = st.lists(
    st.builds(Taken, ROWS, st.integers(1, 2), MOMENTS, LENGTHS, st.booleans()), min_size=1, max_size=12
)


@settings(max_examples=400, deadline=None)
@given(
    taken=TAKEN, part=PARTS, duration=LENGTHS, since=MOMENTS, enough=st.integers(1, 6), apart=st.booleans()
)
def test_first_starts_are_those_of_each_node_by_itself(
    taken: list[Taken], part: Part, duration: float, since: float, enough: int, apart: bool
) -> None:
    world = World(PIPELINE)
    for number, gpus in enumerate(NODES):
        world.join(f"n{number}", gpus=gpus, cpus=CPUS)
    nodes = world.state.nodes
    needs = needs_of(part, nodes.columns)
    lines = Lines.of(nodes, 0.0)
    each_alone = [Timeline(node, 0.0, room_of(nodes, node.row)) for node in nodes.rows]
    before = 0.0
    for number, one in enumerate(taken):
        allocations = tuple(
            Allocation(
                node=f"n{row}",
                cpu_milli=1000 * one.cpus,
                memory_mib=0,
                gpus=(GpuHold(nodes.rows[row].facts.gpus[number % 2].uuid, 1000),) if NODES[row] else (),
            )
            for row in sorted(one.rows)
        )
        start = max(before, one.start)
        lines.give(allocations, start, start + one.length, -1)
        for allocation in allocations:
            each_alone[nodes.by_name[allocation.node].row].give(start, start + one.length, allocation, -1)
        if one.forgotten:
            before = max(before, min(one.start, since))
            lines.forget(before)
    if apart:
        lines.scatter(before)
    since = max(since, before)
    expected = {
        line.node.row: found
        for line in each_alone
        if (found := line.first_start(part, needs, duration, since)) is not None
    }
    everybody = bits_of(range(len(NODES)))

    def starts(enough: int) -> dict[int, float]:
        found = lines.first_starts(part, needs, duration, since, everybody, enough)
        assert [start for start, _, _ in found] == sorted(start for start, _, _ in found)
        return {row: start for start, rows, _ in found for row in rows_in(rows)}

    assert starts(len(NODES)) == {row: start for row, (start, _) in expected.items()}
    soonest = sorted(start for start, _ in expected.values())[:enough]
    fewer = starts(enough)
    for row, (start, room) in expected.items():
        assert start > soonest[-1] or fewer[row] == start
        assert not part.wants_gpus or lines.least(row, start, duration) == room


@settings(max_examples=300, deadline=None)
@given(taken=TAKEN, rows=ROWS, cpus=st.integers(1, 2), start=MOMENTS, length=LENGTHS, duration=LENGTHS)
def test_a_promise_that_is_looked_past_is_as_if_it_were_not_there(
    taken: list[Taken], rows: set[int], cpus: int, start: float, length: float, duration: float
) -> None:
    world = World(PIPELINE)
    for number, gpus in enumerate(NODES):
        world.join(f"n{number}", gpus=gpus, cpus=CPUS)
    nodes = world.state.nodes
    part = ask_of(spec(0, cpu_milli=1000 * cpus, memory_mib=10)).part
    lines = Lines.of(nodes, 0.0)
    for one in taken:
        held = tuple(Allocation(f"n{row}", 1000 * one.cpus, 0) for row in sorted(one.rows))
        lines.give(held, one.start, one.start + one.length, -1)
    if all(lines.least(row, start, length).cpu_milli >= part.cpu_milli for row in rows):
        place = Place(tuple(Allocation(f"n{row}", part.cpu_milli, 10) for row in sorted(rows)), 100)
        promise = Promise(start, start + length, bits_of(rows), place, part)
        needs, everybody = needs_of(part, nodes.columns), bits_of(range(len(NODES)))

        def starts() -> dict[int, float]:
            found = lines.first_starts(part, needs, duration, 0.0, everybody, len(NODES))
            return {row: start for start, rows, _ in found for row in rows_in(rows)}

        without = starts()
        lines.write(promise, -1)
        beside = starts()
        lines.lift(promise)
        assert starts() == without
        lines.lay_back()
        assert starts() == beside
        lines.lift(promise)
        lines.drop()
        assert starts() == without
