"""The room of many nodes without GPUs over time, looked at together: alike nodes are one number."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from controller.core.bits import NO_ROWS, Bits
from controller.core.jobs import NEVER
from controller.core.nodes import Node
from controller.core.requests import Part
from controller.core.room import Room
from controller.core.timeline import Timeline

if TYPE_CHECKING:
    from controller.core.book import Promise

T = TypeVar("T")
Free = tuple[int, int, int]
"""CPU-milli, MiB of memory, MiB of scratch."""
Start = tuple[float, Bits, Room | None]
"""The first moment when these may begin, and the room there is meanwhile where that matters."""


def when(start: Start) -> float:
    """Starts are in this order."""
    return start[0]


class Level:
    """Who has how much room for a while. A value: what changes becomes another one."""

    __slots__ = ("free", "known")

    def __init__(self, free: dict[Free, Bits]) -> None:
        self.free = free
        self.known: dict[int, Bits] = {}
        """Who holds a part, by its number in the skyline."""

    def holds(self, part: Part) -> Bits:
        """The rows that hold the part."""
        cpu, memory, scratch = part.cpu_milli, part.memory_mib, part.scratch_mib
        found = NO_ROWS
        for has, rows in self.free.items():
            if has[0] >= cpu and has[1] >= memory and has[2] >= scratch:
                found |= rows
        return found

    def moved(self, rows: Bits, cpu: int, memory: int, scratch: int) -> Level:
        """The same with so much more on these rows."""
        free: dict[Free, Bits] = {}
        for has, these in self.free.items():
            hit = these & rows
            if hit:
                will = has[0] + cpu, has[1] + memory, has[2] + scratch
                free[will] = free.get(will, NO_ROWS) | hit
                these ^= hit
            if these:
                free[has] = free.get(has, NO_ROWS) | these
        return Level(free)

    def changed(self, other: Level) -> int:
        """How many rows have other room there."""
        return sum((rows & ~other.free.get(has, NO_ROWS)).bit_count() for has, rows in self.free.items())

    def room(self, row: int) -> Room:
        """What one node has."""
        cpu, memory, scratch = next(has for has, rows in self.free.items() if rows >> row & 1)
        return Room(cpu, memory, [], [], scratch)


class Skyline:
    """`levels[i]` holds from `times[i]` until the next time, the last one for ever."""

    __slots__ = ("_held", "_levels", "_numbers", "_times", "rows")

    def __init__(self, now: float, rooms: Mapping[int, Room]) -> None:
        free: dict[Free, Bits] = {}
        self.rows = NO_ROWS
        for row, room in rooms.items():
            has = room.cpu_milli, room.memory_mib, room.scratch_mib
            free[has] = free.get(has, NO_ROWS) | 1 << row
            self.rows |= 1 << row
        self._times = [now]
        self._levels = [Level(free)]
        self._held: dict[Part, list[Bits]] = {}
        """Who holds a part from when on, as long as nothing changes."""
        self._numbers: dict[Part, int] = {}

    def twin(self) -> Skyline:
        """The same, which may go another way from here on."""
        other = Skyline(0.0, {})
        other.rows, other._times, other._levels = self.rows, self._times.copy(), self._levels.copy()
        other._numbers = self._numbers  # the levels of both go by these
        return other

    @property
    def size(self) -> int:
        """How much there is to look at."""
        return sum(len(level.free) for level in self._levels)

    @property
    def spans_at_once(self) -> float:
        """If each node had a line of its own: how many spans there would be on those of one job."""
        nodes, changes = (
            self.rows.bit_count(),
            sum(here.changed(later) for here, later in pairwise(self._levels)),
        )
        return (nodes + changes) / nodes * changes / max(1, len(self._levels) - 1)

    def line(self, node: Node) -> Timeline:
        """The line of one node by itself."""
        found = Timeline(node, self._times[0], self._levels[0].room(node.row))
        for moment, level in zip(self._times, self._levels, strict=True):
            found.go_on(moment, level.room(node.row))
        return found

    def least(self, row: int, since: float, duration: float) -> Room:
        """What one node has free all the time from `since` on for so long."""
        at, end = max(0, bisect_right(self._times, since) - 1), since + duration
        least = self._levels[at].room(row)
        for later in range(at + 1, len(self._times)):
            if self._times[later] >= end:
                break
            least = least.least(self._levels[later].room(row))
        return least

    def forget(self, now: float) -> None:
        """Drop what is over."""
        over = bisect_right(self._times, now) - 1
        if over > 0:
            del self._times[:over]
            del self._levels[:over]
            self._held.clear()

    def give(self, start: float, end: float, rows: Bits, each: Free, sign: int) -> None:
        """Put so much back (1) on each of these rows, or take it out (-1), from `start` until `end`."""
        if end <= start or not rows:
            return
        self._held.clear()
        times, levels = self._times, self._levels
        cpu, memory, scratch = (sign * amount for amount in each)
        first, last = _cut(times, levels, start), _cut(times, levels, end)
        for at in range(first, last):
            levels[at] = levels[at].moved(rows, cpu, memory, scratch)
        for at in (last, first):  # what ended here may have been the only difference
            if 0 < at < len(times) and levels[at].free == levels[at - 1].free:
                del times[at], levels[at]

    def first_starts(
        self,
        part: Part,
        duration: float,
        since: float,
        among: Bits,
        enough: int,
        past: Promise | None = None,
    ) -> list[Start]:
        """The first start on each of these rows from `since` on, the soonest first, until there are enough.

        `past`: a promise of the same part not to be seen. Its rows hold the part as long as it is for.
        """
        among &= self.rows
        times, holds = self._times, self._holding(part)
        if past is not None and past.rows & self.rows:
            times, holds = _with(times, holds, past)
        count = len(times)
        at = max(0, bisect_right(times, since) - 1)
        start, found, before = since, NO_ROWS, NO_ROWS
        starts: list[Start] = []
        while True:
            here = holds[at] & among
            # Who had room just before has been asked then. Among those to whom it comes here: who keeps it?
            free = here & ~(before | found)
            before, until, end = here, at + 1, start + duration
            while free:
                if until == count or times[until] >= end:
                    starts.append((start, free, None))
                    found |= free
                    if found.bit_count() >= enough:
                        return starts
                    break
                free &= holds[until]
                until += 1
            at += 1
            if at == count:
                return starts
            start = times[at]

    def _holding(self, part: Part) -> list[Bits]:
        holds = self._held.get(part)
        if holds is None:
            holds = self._held[part] = []
            number = self._numbers.setdefault(part, len(self._numbers))
            for level in self._levels:
                rows = level.known.get(number)
                if rows is None:
                    rows = level.known[number] = level.holds(part)
                holds.append(rows)
        return holds


def _cut(times: list[float], each: list[T], moment: float) -> int:
    """Where that which is from then on begins."""
    at = bisect_left(times, moment)
    if (at == len(times) or times[at] != moment) and moment != NEVER:
        times.insert(at, moment)
        each.insert(at, each[at - 1])
    return at


def _with(times: list[float], holds: list[Bits], past: Promise) -> tuple[list[float], list[Bits]]:
    """The same as if that had not been promised."""
    times, holds = times.copy(), holds.copy()
    for at in range(_cut(times, holds, past.start), _cut(times, holds, past.end)):
        holds[at] |= past.rows
    return times, holds
