"""The room over time of nodes that are looked at one by one, and who of them is free first for whom."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import islice

from controller.core.bits import NO_ROWS, Bits, bits_of, rows_in
from controller.core.events import Allocation
from controller.core.needs import Needs
from controller.core.nodes import Node
from controller.core.requests import Part
from controller.core.skyline import Start, when
from controller.core.timeline import Timeline

KEPT = 200_000
"""First starts that are remembered, all together."""


class Singles:
    """A line for each. The first starts for a part and a duration are kept in their order.

    A first start stays the first until something happens on its node or its moment has come. So who asks for
    what others have asked for looks at few nodes again, and then no further than to the last it needs.
    """

    def __init__(self, now: float, lines: Iterable[Timeline]) -> None:
        self.rows = NO_ROWS
        self._now = now
        self._lines: dict[int, Timeline] = {}
        self._aside: dict[int, Timeline] = {}
        """Lines for which others stand, as long as one looks past what is on them."""
        self._changed: list[int] = []
        """Rows, oldest first."""
        self._asked: dict[tuple[Part, float], tuple[int, list[Start]]] = {}
        """How many changes had been when all was looked at, and who can start when, the soonest first."""
        self.add(lines)

    def add(self, lines: Iterable[Timeline]) -> None:
        """Of other nodes."""
        for line in lines:
            self._lines[line.node.row] = line
            self.rows |= 1 << line.node.row
        self._asked.clear()

    def twin(self, nodes: Sequence[Node]) -> Singles:
        """The same on copies of the nodes."""
        return Singles(self._now, [line.twin(nodes[row]) for row, line in self._lines.items()])

    def forget(self, now: float) -> None:
        """Drop what is over."""
        self._now = now
        for line in self._lines.values():
            line.forget(now)
        if len(self._changed) > 1_000 + 4 * len(self._lines):
            self._changed.clear()
            self._asked.clear()

    def give(self, row: int, start: float, end: float, allocation: Allocation, sign: int) -> None:
        """Put an allocation back (1) or take it out (-1) from `start` until `end`."""
        self._lines[row].give(start, end, allocation, sign)
        if row not in self._aside:
            self._changed.append(row)

    def lift(self, rows: Bits) -> None:
        """What is given on these is only a thought, until it is dropped or laid back."""
        for row in rows_in(rows):
            line = self._aside[row] = self._lines[row]
            self._lines[row] = line.twin(line.node)

    def lay_back(self) -> None:
        """All is as it was."""
        self._lines |= self._aside
        self._aside.clear()

    def drop(self) -> None:
        """It was right."""
        self._changed += self._aside
        self._aside.clear()

    def line(self, row: int) -> Timeline:
        """That of one node."""
        return self._lines[row]

    def first_starts(
        self, part: Part, needs: Needs, duration: float, since: float, among: Bits, enough: int
    ) -> list[Start]:
        """The first start on each of these nodes from `since` on, in no order.

        Once there are enough, others that start later may be left out.
        """
        among &= self.rows
        known = self._known(part, needs, duration)
        first = bisect_left(known, since, key=when)
        again = among & (bits_of(self._aside) | _bits(islice(known, first)))
        starts: list[Start] = [
            (found[0], 1 << row, found[1])
            for row in rows_in(again)
            if (found := self._lines[row].first_start(part, needs, duration, since)) is not None
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

    def _known(self, part: Part, needs: Needs, duration: float) -> list[Start]:
        """The first starts from now on, were nothing lifted."""
        changes, known = self._asked.get((part, duration), (-1, []))
        if changes < 0:
            stale = self.rows
        else:
            over = bisect_left(known, self._now, key=when)
            stale = bits_of(set(self._changed[changes:])) | _bits(islice(known, over))
        if stale:
            known = [each for each in known if not each[1] & stale]
            for row in rows_in(stale):
                line = self._aside.get(row) or self._lines[row]
                found = line.first_start(part, needs, duration, self._now)
                if found is not None:
                    known.append((found[0], 1 << row, found[1]))
            known.sort(key=when)
        if stale or changes != len(self._changed):
            if len(self._asked) * len(self._lines) > KEPT:
                self._asked.clear()
            self._asked[part, duration] = len(self._changed), known
        return known


def _bits(starts: Iterable[Start]) -> Bits:
    found = NO_ROWS
    for _, rows, _ in starts:
        found |= rows
    return found
