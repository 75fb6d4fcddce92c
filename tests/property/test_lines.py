"""The shared timeline of several nodes gives the same first starts as a separate timeline for each node."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from controller.core.backfill.conservative.node_timelines import NodeTimelines
from controller.core.backfill.conservative.reservation import BackfillReservation
from controller.core.backfill.conservative.timeline import NodeTimeline
from controller.core.cluster.free_resources import free_on
from controller.core.cluster.gpus.gpu_requirements import gpu_needs_of
from controller.core.cluster.node_table import row_set, rows_in
from controller.core.model.allocation import Allocation
from controller.core.model.job import NEVER
from controller.core.model.request import PerNodeRequest, request_of
from controller.core.placement.placer import Placement
from tests.engine_harness import PIPELINE, EngineHarness, spec
from tests.examples import examples
from wire.agent.orders import GpuHold

CPUS = 4
NODES = (0, 0, 0, 0, 0, 2)
"""Their GPUs: all but the last have none."""
ROWS = st.sets(st.integers(0, len(NODES) - 1), min_size=1)
MOMENTS = st.integers(0, 12).map(float)
LENGTHS = st.sampled_from([1.0, 2.0, 3.0, 7.0, NEVER])
PARTS = st.builds(
    lambda cpus, gpus: request_of(spec(gpus, cpu_milli=1000 * cpus, memory_mib=0)).part,
    st.integers(1, CPUS),
    st.sampled_from([0, 0, 0, 1, 2]),
)


@dataclass(frozen=True)
class Taken:
    """A job that holds this many CPUs, and a GPU if the node has one."""

    rows: set[int]
    cpus: int
    start: float
    length: float
    forgotten: bool
    """Are lines asked to forget what is over then?"""


TAKEN = st.lists(
    st.builds(Taken, ROWS, st.integers(1, 2), MOMENTS, LENGTHS, st.booleans()), min_size=1, max_size=12
)


@dataclass
class Both:
    """The same nodes with one shared timeline, and with a timeline for each node."""

    harness: EngineHarness
    lines: NodeTimelines
    alone: list[NodeTimeline]

    def give(self, allocations: tuple[Allocation, ...], start: float, end: float) -> None:
        """Remove allocations from both kinds of timelines."""
        self.lines.give(allocations, start, end, -1)
        for each in allocations:
            self.alone[self.harness.state.nodes.by_name[each.node].row].give(start, end, each, -1)

    def compare(self, part: PerNodeRequest, duration: float, since: float, enough: int) -> None:
        """Compare the first starts of both kinds of timelines: all of them, or the first `enough`."""
        needs = gpu_needs_of(part, self.harness.state.nodes.columns)
        expected = {
            line.node.row: found
            for line in self.alone
            if (found := line.first_start(part, needs, duration, since)) is not None
        }
        everybody = row_set(range(len(NODES)))
        for count in (len(NODES), enough):
            starts = self.lines.first_starts(part, needs, duration, since, everybody, count)
            assert [start for start, _, _ in starts] == sorted(start for start, _, _ in starts)
            found = {row: (start, room) for start, rows, room in starts for row in rows_in(rows)}
            soonest = sorted(start for start, _ in expected.values())[:count]
            for row, (start, room) in expected.items():
                assert start > soonest[-1] or found[row][0] == start
                assert row not in found or not part.wants_gpus or found[row][1] == room
            assert found.keys() <= expected.keys()


def nodes_of(apart: bool) -> Both:
    """Return timelines of idle nodes. With `apart`, each node without GPUs has its own timeline."""
    harness = EngineHarness(PIPELINE)
    for number, gpus in enumerate(NODES):
        harness.join(f"n{number}", gpus=gpus, cpus=CPUS)
    nodes = harness.state.nodes
    lines = NodeTimelines.of(nodes, 0.0)
    if apart:
        lines.split_shared(0.0)
    return Both(harness, lines, [NodeTimeline(node, 0.0, free_on(nodes, node.row)) for node in nodes.rows])


@settings(max_examples=examples(450))
@given(
    taken=TAKEN, part=PARTS, duration=LENGTHS, later=MOMENTS, enough=st.integers(1, 6), apart=st.booleans()
)
def test_first_starts_equal_those_of_each_node_alone(
    taken: list[Taken], part: PerNodeRequest, duration: float, later: float, enough: int, apart: int
) -> None:
    both, now = nodes_of(apart=not apart), 0.0
    gpus = both.harness.state.nodes.rows[-1].facts.gpus
    for number, one in enumerate(taken):
        held = tuple(
            Allocation(
                node=f"n{row}",
                cpu_milli=1000 * one.cpus,
                memory_mib=0,
                gpus=(GpuHold(gpus[number % 2].uuid, 1000),) if NODES[row] else (),
            )
            for row in sorted(one.rows)
        )
        start = max(now, one.start)
        both.give(held, start, start + one.length)
        if one.forgotten:
            now = max(now, min(one.start, later))
            both.lines.forget_past(now)
        if number == apart:
            both.lines.split_shared(now)
        both.compare(part, duration, now, enough)
        both.compare(part, duration, max(now, later), enough)


@settings(max_examples=examples(450))
@given(
    taken=TAKEN,
    rows=ROWS,
    cpus=st.integers(1, 2),
    start=MOMENTS,
    length=LENGTHS,
    duration=LENGTHS,
    apart=st.booleans(),
)
def test_ignored_reservation_has_no_effect(
    taken: list[Taken],
    rows: set[int],
    cpus: int,
    start: float,
    length: float,
    duration: float,
    apart: bool,
) -> None:
    both = nodes_of(apart)
    lines = both.lines
    part = request_of(spec(0, cpu_milli=1000 * cpus, memory_mib=10)).part
    for one in taken:
        held = tuple(Allocation(f"n{row}", 1000 * one.cpus, 0) for row in sorted(one.rows))
        both.give(held, one.start, one.start + one.length)
    assume(all(lines.least(row, start, length).cpu_milli >= part.cpu_milli for row in rows))
    place = Placement(tuple(Allocation(f"n{row}", part.cpu_milli, 10) for row in sorted(rows)), 100)
    promise = BackfillReservation(1, start, start + length, row_set(rows), place, part)
    both.compare(part, duration, 0.0, 6)
    lines.reserve(promise)
    lines.set_aside(promise)
    both.compare(part, duration, 0.0, 6)
    lines.put_back()
    lines.set_aside(promise)
    lines.drop_aside()
    both.compare(part, duration, 0.0, 6)
    lines.reserve(promise)
    for each in place.allocations:
        both.alone[both.harness.state.nodes.by_name[each.node].row].give(start, start + length, each, -1)
    both.compare(part, duration, 0.0, 6)
    lines.set_aside(promise)
    lines.put_back()
    both.compare(part, duration, 0.0, 6)
