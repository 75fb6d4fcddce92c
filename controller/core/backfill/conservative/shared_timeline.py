"""One timeline for all nodes without GPUs. Nodes with the same free resources are stored together as one
set.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import pairwise

from controller.core.backfill.conservative.reservation import BackfillReservation
from controller.core.backfill.conservative.timeline import NodeTimeline, Timeline
from controller.core.cluster.free_resources import FreeResources
from controller.core.cluster.node import Node
from controller.core.cluster.node_table import NO_ROWS, RowSet
from controller.core.model.request import PerNodeRequest

Amounts = tuple[int, int, int]
"""Amounts of resources: thousandths of a CPU, MiB of memory, MiB of scratch."""
FirstStart = tuple[float, RowSet, FreeResources | None]
"""A first start: a time, the nodes on which a request can start at that time, and the resources that stay
free on a node while the request runs. The resources are None for nodes on a shared timeline, which have no
GPUs.
"""


def start_time(start: FirstStart) -> float:
    """Return the time of a `FirstStart`: the time from which a request fits on some nodes."""
    return start[0]


class FreeByNode:
    """The nodes, grouped by free CPU, memory and scratch. An object of this class never changes, so copies of
    a timeline can share it.
    """

    __slots__ = ("by_amounts", "fits")

    def __init__(self, by_amounts: dict[Amounts, RowSet]) -> None:
        self.by_amounts = by_amounts
        self.fits: dict[int, RowSet] = {}
        """The nodes on which each request fits. The key is the number that `SharedTimeline` gives the
        request.
        """

    def rows_with_room(self, part: PerNodeRequest, number: int) -> RowSet:
        """Return the nodes with enough free CPU, memory and scratch for the request. Keep the answer in
        `fits` under the number of the request.
        """
        cpu, memory, scratch = part.cpu_milli, part.memory_mib, part.scratch_mib
        found = NO_ROWS
        for amounts, rows in self.by_amounts.items():
            if amounts[0] >= cpu and amounts[1] >= memory and amounts[2] >= scratch:
                found |= rows
        self.fits[number] = found
        return found

    def plus(self, rows: RowSet, cpu: int, memory: int, scratch: int) -> FreeByNode:
        """Return a copy in which `cpu`, `memory` and `scratch` are added to the free amounts of some nodes.

        `rows` is the set of the row numbers of these nodes.
        """
        after: dict[Amounts, RowSet] = {}
        for amounts, these in self.by_amounts.items():
            hit = these & rows
            if hit:
                more = amounts[0] + cpu, amounts[1] + memory, amounts[2] + scratch
                after[more] = after.get(more, NO_ROWS) | hit
                these ^= hit
            if these:
                after[amounts] = after.get(amounts, NO_ROWS) | these
        return FreeByNode(after)

    def count_different(self, other: FreeByNode) -> int:
        """Return on how many nodes the free amounts differ between this object and `other`."""
        return sum(
            (rows & ~other.by_amounts.get(amounts, NO_ROWS)).bit_count()
            for amounts, rows in self.by_amounts.items()
        )

    def of(self, row: int) -> FreeResources:
        """Return the free resources of the node with this row number."""
        cpu, memory, scratch = next(each for each, rows in self.by_amounts.items() if rows >> row & 1)
        return FreeResources(cpu, memory, [], [], scratch)


class SharedTimeline(Timeline[FreeByNode]):
    """The free CPU, memory and scratch of all nodes without GPUs over time.

    In each segment of time, the nodes with equal free amounts are stored as one set. A job on 100 nodes then
    changes one set. With a separate timeline for each node, it would change 100 timelines.

    Example: nodes 0 to 99 have 64 CPUs, and nodes 0 to 49 hold a job of 64 CPUs until 10:00. The first value
    is {0 CPUs: nodes 0-49, 64 CPUs: nodes 50-99}. The value from 10:00 on is {64 CPUs: nodes 0-99}.
    """

    __slots__ = ("_numbers", "_room_for", "rows")

    def __init__(self, now: float, free: Mapping[int, FreeResources]) -> None:
        by_amounts: dict[Amounts, RowSet] = {}
        self.rows = NO_ROWS
        for row, each in free.items():
            amounts = each.cpu_milli, each.memory_mib, each.scratch_mib
            by_amounts[amounts] = by_amounts.get(amounts, NO_ROWS) | 1 << row
            self.rows |= 1 << row
        super().__init__([now], [FreeByNode(by_amounts)])
        self._room_for: dict[PerNodeRequest, list[RowSet]] = {}
        """The nodes on which each request fits, for each segment of time. Every change clears this cache."""
        self._numbers: dict[PerNodeRequest, int] = {}

    def copy(self) -> SharedTimeline:
        other = SharedTimeline(0.0, {})
        other.rows, other.times, other.values = self.rows, self.times.copy(), self.values.copy()
        # Use the same `FreeByNode` objects in this timeline and in its copy. These objects cache results by
        # request number, so a request must have the same number in both timelines.
        other._numbers = self._numbers
        return other

    @property
    def size(self) -> int:
        """The total number of node sets in all segments. The cost of a change of the timeline is proportional
        to this number.
        """
        return sum(len(value.by_amounts) for value in self.values)

    @property
    def spans_per_job(self) -> float:
        """The average number of segments that a job would change if every node had a separate timeline."""
        nodes = self.rows.bit_count()
        changes = sum(here.count_different(later) for here, later in pairwise(self.values))
        return (nodes + changes) / nodes * changes / max(1, len(self.values) - 1)

    def timeline_of(self, node: Node) -> NodeTimeline:
        """Return the free resources of one node over time, as a separate timeline."""
        found = NodeTimeline(node, self.times[0], self.values[0].of(node.row))
        for moment, value in zip(self.times, self.values, strict=True):
            found.append(moment, value.of(node.row))
        return found

    def least(self, row: int, since: float, duration: float) -> FreeResources:
        """Return the resources that stay free on one node from `since` to `since + duration`."""
        at, end = self.index_at(since), since + duration
        least = self.values[at].of(row)
        for later in range(at + 1, len(self.times)):
            if self.times[later] >= end:
                break
            least = least.minimum(self.values[later].of(row))
        return least

    def forget_past(self, now: float) -> bool:
        """Drop the segments (parts of the timeline) that end at or before the time `now`. Return whether
        there were such segments.
        """
        forgotten = super().forget_past(now)
        if forgotten:
            self._room_for.clear()
        return forgotten

    def give(self, start: float, end: float, rows: RowSet, amounts: Amounts, sign: int) -> None:
        """Change the free resources of the nodes `rows`: add `amounts` (`sign` 1) or subtract `amounts`
        (`sign` -1).

        The change applies to the time from `start` to `end`.
        """
        if end <= start or not rows:
            return
        self._room_for.clear()
        cpu, memory, scratch = (sign * amount for amount in amounts)
        first, last = self.cut(start), self.cut(end)
        times, values = self.times, self.values
        for at in range(first, last):
            values[at] = values[at].plus(rows, cpu, memory, scratch)
        for at in (last, first):  # Merge neighbouring segments that have become equal.
            if 0 < at < len(times) and values[at].by_amounts == values[at - 1].by_amounts:
                del times[at], values[at]

    def first_starts(
        self,
        part: PerNodeRequest,
        duration: float,
        since: float,
        among: RowSet,
        enough: int,
        without: BackfillReservation | None = None,
    ) -> list[FirstStart]:
        """Return for each node of `among` the first time, at or after `since`, when the request `part` fits
        on the node for `duration` seconds.

        `part` is the request for one node. The nodes are sorted by this time. At least `enough` nodes are
        returned if this many exist.

        1. Go through the segments of time. In each segment, take the nodes where `part` fits but did not fit
           in the segment before.
        2. Of these nodes, keep the nodes where `part` also fits in all later segments until `duration` is
           over. The first start of the kept nodes is the beginning of the segment.
        3. Stop once `enough` nodes have a first start.

        `without` is the present reservation of the job itself. The resources of `without` count as free.
        These resources were reserved for `part`, so `part` fits on the reserved nodes for the whole time of
        the reservation.
        """
        among &= self.rows
        times, room = self.times, self._rows_with_room(part)
        if without is not None and without.rows & self.rows:
            seen = Timeline(times.copy(), room.copy())
            times, room = seen.times, seen.values
            for at in range(seen.cut(without.starts_at), seen.cut(without.ends_at)):
                room[at] |= without.rows
        count, first = len(times), max(0, bisect_right(times, since) - 1)
        found = before = NO_ROWS
        starts: list[FirstStart] = []
        for at in range(first, count):
            here = room[at] & among
            if here == before:
                continue
            # Skip nodes where `part` fits in the segment before, too. A start in that segment was tried and
            # failed, because `part` stops fitting too soon. A start in this segment fails at the same time.
            free = here & ~(before | found)
            before, until = here, at + 1
            start = since if at == first else times[at]
            end = start + duration
            while free:
                if until == count or times[until] >= end:
                    starts.append((start, free, None))
                    found |= free
                    if found.bit_count() >= enough:
                        return starts
                    break
                free &= room[until]
                until += 1
        return starts

    def _rows_with_room(self, part: PerNodeRequest) -> list[RowSet]:
        """Return for each segment of time the nodes on which the request fits."""
        room = self._room_for.get(part)
        if room is None:
            number = self._numbers.setdefault(part, len(self._numbers))
            room = self._room_for[part] = [
                value.rows_with_room(part, number) if (rows := value.fits.get(number)) is None else rows
                for value in self.values
            ]
        return room
