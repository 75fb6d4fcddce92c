"""The free resources of all nodes over time. Finds the first time at which a request fits on each node."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import islice

from controller.core.backfill.conservative.reservation import BackfillReservation
from controller.core.backfill.conservative.shared_timeline import (
    Amounts,
    FirstStart,
    SharedTimeline,
    start_time,
)
from controller.core.backfill.conservative.timeline import NodeTimeline
from controller.core.cluster.free_resources import FreeResources, free_on
from controller.core.cluster.gpus.gpu_requirements import GpuNeeds
from controller.core.cluster.node import Node
from controller.core.cluster.node_table import NO_ROWS, RowSet, row_set, rows_in
from controller.core.cluster.nodes import Nodes
from controller.core.model.allocation import Allocation
from controller.core.model.request import PerNodeRequest

SMALL_SHARED_TIMELINE = 256
"""Nodes without GPUs keep one shared timeline up to this size (`SharedTimeline.size`). A larger shared
timeline is split if this makes changes of it faster.
"""
SHARED_WRITE_DISCOUNT = 8
"""The cost of changing a segment in a separate timeline, divided by the cost of changing a set of nodes in
the shared timeline.
"""
CACHED_STARTS = 200_000
"""The most first starts that are kept in the cache. A first start is the time from which a request fits on a
node.
"""


class NodeTimelines:
    """The resources that running jobs and backfill reservations leave free on every node, from now on.

    The first start of a request on a node is the earliest time at which the request fits there for its whole
    duration. A timeline is a list of segments; in each segment the free resources are constant.

    1. A node with GPUs has a separate timeline, because a job keeps the same GPUs until it ends.
    2. All other nodes share one timeline (`SharedTimeline`). If mostly single nodes change, the shared
       timeline is slower than separate ones. Each node then gets a separate timeline (`split_shared`), and
       the separate timelines are never merged again.
    3. First starts on separate timelines are cached by request and duration, sorted by time. A first start
       stays valid until its node changes or its time has passed. A repeated query computes only the changed
       nodes again. The query reads the sorted list of first starts only up to the last node that the query
       needs.
    4. A reservation may be able to start sooner. To check this, first starts are computed without the
       reservation (`set_aside`). Afterwards the reservation is restored (`put_back`) or removed
       (`drop_aside`).

    Cost of `first_starts`: O(changed nodes + nodes needed) for a repeated query.
    """

    def __init__(
        self, nodes: Mapping[str, Node], now: float, separate: Iterable[NodeTimeline], shared: SharedTimeline
    ) -> None:
        self._nodes = nodes
        self._now = now
        self._shared = shared
        self._split_above = SMALL_SHARED_TIMELINE
        self._separate: dict[int, NodeTimeline] = {}
        self._separate_rows = NO_ROWS
        self._add_separate(separate)
        self._aside: BackfillReservation | None = None
        self._saved: dict[int, NodeTimeline] = {}
        """The separate timelines that the last `set_aside` replaced by changed copies, by row number of the
        node.
        """
        self._changed: list[int] = []
        """The row numbers of the nodes with separate timelines, in the order in which these nodes changed."""
        self._known: dict[tuple[PerNodeRequest, float], tuple[int, list[FirstStart]]] = {}
        """The cached first starts, sorted by time, for each request and duration. Each entry also has the
        length of `_changed` at the time when the entry was computed.
        """

    @classmethod
    def of(cls, nodes: Nodes, now: float) -> NodeTimelines:
        """Return timelines without any backfill reservation. The resources that are free on each node now
        stay free forever.
        """
        free = {node.row: free_on(nodes, node.row) for node in nodes.rows}
        separate = [NodeTimeline(nodes.rows[row], now, each) for row, each in free.items() if each.gpus]
        shared = SharedTimeline(now, {row: each for row, each in free.items() if not each.gpus})
        return cls(nodes.by_name, now, separate, shared)

    def copy(self, nodes: Nodes) -> NodeTimelines:
        """Return a copy that refers to `nodes`, a copy of the cluster's nodes."""
        separate = [line.copy(nodes.rows[row]) for row, line in self._separate.items()]
        return NodeTimelines(nodes.by_name, self._now, separate, self._shared.copy())

    def __len__(self) -> int:
        return (self._separate_rows | self._shared.rows).bit_count()

    def forget_past(self, now: float) -> None:
        """Drop from all timelines the segments that end at or before the time `now`.

        After many changes, also clear the cache of first starts. Split the shared timeline if a change of it
        takes longer than the same change of separate timelines would.
        """
        self._now = now
        for line in self._separate.values():
            line.forget_past(now)
        if len(self._changed) > 1_000 + 4 * len(self._separate):
            self._changed.clear()
            self._known.clear()
        shared = self._shared
        shared.forget_past(now)
        if shared.size > self._split_above:
            self._split_above = 2 * shared.size
            if shared.size > SHARED_WRITE_DISCOUNT * shared.spans_per_job:
                self.split_shared(now)

    def split_shared(self, now: float) -> None:
        """Create a separate timeline for each node without GPUs. These timelines replace the timeline that
        the nodes share.
        """
        shared, self._shared = self._shared, SharedTimeline(now, {})
        rows = shared.rows
        self._add_separate(shared.timeline_of(node) for node in self._nodes.values() if rows >> node.row & 1)
        self._known.clear()

    def _add_separate(self, lines: Iterable[NodeTimeline]) -> None:
        for line in lines:
            self._separate[line.node.row] = line
            self._separate_rows |= 1 << line.node.row

    def give(self, allocations: Iterable[Allocation], start: float, end: float, sign: int) -> None:
        """Change the free resources from `start` to `end`: add the allocations (`sign` 1) or subtract the
        allocations (`sign` -1).
        """
        together: dict[Amounts, RowSet] = {}
        for each in allocations:
            row = self._nodes[each.node].row
            if self._separate_rows >> row & 1:
                self._give_separate(row, start, end, each, sign)
            else:
                amounts = each.cpu_milli, each.memory_mib, each.scratch_mib
                together[amounts] = together.get(amounts, NO_ROWS) | 1 << row
        for amounts, rows in together.items():
            self._shared.give(start, end, rows, amounts, sign)

    def _give_separate(self, row: int, start: float, end: float, allocation: Allocation, sign: int) -> None:
        self._separate[row].give(start, end, allocation, sign)
        if row not in self._saved:
            self._changed.append(row)

    def reserve(self, reservation: BackfillReservation) -> None:
        """Count the resources of the reservation as used between its start and its end."""
        self._give_reserved_separate(reservation, -1)
        self._give_reserved_shared(reservation, -1)

    def release(self, reservation: BackfillReservation) -> None:
        """Count the resources of the reservation as free again, because the reservation was dropped."""
        self._give_reserved_separate(reservation, 1)
        self._give_reserved_shared(reservation, 1)

    def set_aside(self, reservation: BackfillReservation) -> None:
        """Treat the resources of this reservation as free in all results until `put_back` or `drop_aside` is
        called.
        """
        self._aside = reservation
        separate = reservation.rows & self._separate_rows
        if separate:
            for row in rows_in(separate):
                line = self._saved[row] = self._separate[row]
                self._separate[row] = line.copy(line.node)
            self._give_reserved_separate(reservation, 1)

    def put_back(self) -> None:
        """End `set_aside`: treat the resources of the reservation as reserved again."""
        if self._saved:
            self._separate |= self._saved
            self._saved.clear()
        self._aside = None

    def drop_aside(self) -> None:
        """End `set_aside` and drop its reservation. The resources of the reservation stay free."""
        self._changed += self._saved
        self._saved.clear()
        if self._aside is not None:
            self._give_reserved_shared(self._aside, 1)
        self._aside = None

    def _give_reserved_separate(self, reservation: BackfillReservation, sign: int) -> None:
        separate = reservation.rows & self._separate_rows
        for each in reservation.placement.allocations if separate else ():
            row = self._nodes[each.node].row
            if separate >> row & 1:
                self._give_separate(row, reservation.starts_at, reservation.ends_at, each, sign)

    def _give_reserved_shared(self, reservation: BackfillReservation, sign: int) -> None:
        part, rows = reservation.part, reservation.rows & self._shared.rows
        amounts = part.cpu_milli, part.memory_mib, part.scratch_mib
        self._shared.give(reservation.starts_at, reservation.ends_at, rows, amounts, sign)

    def least(self, row: int, since: float, duration: float) -> FreeResources:
        """Return the resources that one node has free during the whole time from `since` to `since +
        duration`.
        """
        if self._separate_rows >> row & 1:
            return self._separate[row].least(since, duration)
        return self._shared.least(row, since, duration)

    def first_starts(
        self,
        part: PerNodeRequest,
        needs: GpuNeeds,
        duration: float,
        since: float,
        among: RowSet,
        enough: int,
    ) -> list[FirstStart]:
        """Return for each node of `among` the first time, at or after `since`, when the request `part` fits
        on the node for `duration` seconds.

        `part` is the request for one node. The nodes are sorted by this time. The list may end after `enough`
        nodes.
        """
        starts: list[FirstStart] = []
        if among & self._shared.rows and not needs.count:
            starts = self._shared.first_starts(part, duration, since, among, enough, self._aside)
        if among & self._separate_rows:
            among &= self._separate_rows
            starts += self._first_starts_separate(part, needs, duration, since, among, enough)
            starts.sort(key=start_time)
        return starts

    def _first_starts_separate(
        self,
        part: PerNodeRequest,
        needs: GpuNeeds,
        duration: float,
        since: float,
        among: RowSet,
        enough: int,
    ) -> list[FirstStart]:
        known = self._known_starts(part, needs, duration)
        first = bisect_left(known, since, key=start_time)
        # Compute the first start again on two kinds of nodes: nodes whose cached first start is before
        # `since`, and nodes on which a reservation is ignored for the moment (`set_aside`).
        again = among & (row_set(self._saved) | _rows_of(islice(known, first)))
        starts: list[FirstStart] = [
            (found[0], 1 << row, found[1])
            for row in rows_in(again)
            if (found := self._separate[row].first_start(part, needs, duration, since)) is not None
        ]
        among ^= again
        count, last = 0, since
        for each in islice(known, first, None):
            if count >= enough and each[0] != last:
                break
            if each[1] & among:
                starts.append(each)
                count, last = count + 1, each[0]
        return starts

    def _known_starts(self, part: PerNodeRequest, needs: GpuNeeds, duration: float) -> list[FirstStart]:
        """Return the first start of the request `part` on each node with a separate timeline: the first time
        from now on at which the request fits on the node for `duration` seconds.

        The result is cached and must stay valid after `put_back`. Therefore the reservation that `set_aside`
        ignores counts as reserved here.
        """
        changes, known = self._known.get((part, duration), (-1, []))
        if changes < 0:
            stale = self._separate_rows
        else:
            past = bisect_left(known, self._now, key=start_time)
            stale = row_set(set(self._changed[changes:])) | _rows_of(islice(known, past))
        if stale:
            known = [each for each in known if not each[1] & stale]
            for row in rows_in(stale):
                line = self._saved.get(row) or self._separate[row]
                found = line.first_start(part, needs, duration, self._now)
                if found is not None:
                    known.append((found[0], 1 << row, found[1]))
            known.sort(key=start_time)
        if stale or changes != len(self._changed):
            if len(self._known) * len(self._separate) > CACHED_STARTS:
                self._known.clear()
            self._known[part, duration] = len(self._changed), known
        return known


def _rows_of(starts: Iterable[FirstStart]) -> RowSet:
    found = NO_ROWS
    for _, rows, _ in starts:
        found |= rows
    return found
