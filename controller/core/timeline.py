"""The room of one node over time, as far as it is known: what runs, and what is promised."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from controller.core.events import Allocation
from controller.core.needs import Needs
from controller.core.nodes import Node
from controller.core.requests import Part
from controller.core.room import Room


class Timeline:
    """`rooms[i]` holds from `times[i]` until the next time, the last one for ever."""

    __slots__ = ("_rooms", "_times", "node")

    def __init__(self, node: Node, now: float, room: Room) -> None:
        self.node = node
        self._times = [now]
        self._rooms = [room]

    def twin(self, node: Node) -> Timeline:
        """The same on a copy of the node."""
        other = Timeline(node, 0.0, self._rooms[0])
        other._times = list(self._times)
        other._rooms = [room.twin() for room in self._rooms]
        return other

    def go_on(self, when: float, room: Room) -> None:
        """From then on there is that room, as far as is known."""
        if room != self._rooms[-1]:
            self._times.append(when)
            self._rooms.append(room)

    def forget(self, now: float) -> None:
        """Drop what is over."""
        over = bisect_right(self._times, now) - 1
        if over > 0:
            del self._times[:over]
            del self._rooms[:over]

    def give(self, start: float, end: float, allocation: Allocation, sign: int) -> None:
        """Put an allocation back (1) or take it out (-1) from `start` until `end`."""
        if end <= start:
            return
        first, last = self._cut(start), self._cut(end)
        for room in self._rooms[first:last]:
            room.give(self.node, allocation, sign)
        for at in (last, first):  # what ended here may have been the only difference
            if 0 < at < len(self._times) and self._rooms[at] == self._rooms[at - 1]:
                del self._times[at]
                del self._rooms[at]

    def _cut(self, when: float) -> int:
        """Where the room from then on begins, in a segment of its own."""
        if when == float("inf"):
            return len(self._times)
        at = bisect_left(self._times, when)
        if at == len(self._times) or self._times[at] != when:
            before = self._rooms[at - 1]
            self._times.insert(at, when)
            self._rooms.insert(at, before.twin())
        return at

    def least(self, since: float, duration: float) -> Room:
        """What is free all the time from `since` on for so long."""
        # Not by differences: two fractions need not be as far apart as the one was put behind the other.
        at, end = max(0, bisect_right(self._times, since) - 1), since + duration
        least = self._rooms[at]
        for later in range(at + 1, len(self._times)):
            if self._times[later] >= end:
                break
            least = least.least(self._rooms[later])
        return least

    def first_start(
        self, part: Part, needs: Needs, duration: float, since: float
    ) -> tuple[float, Room] | None:
        """The first moment from `since` on when the part fits and may stay, with the least room meanwhile."""
        row = self.node.row
        times, rooms, count = self._times, self._rooms, len(self._times)
        at = max(0, bisect_right(times, since) - 1)
        start = since
        while True:
            least, end = rooms[at], start + duration
            until = at
            while least.holds(part, needs, row):
                until += 1
                if until == count or times[until] >= end:
                    return start, least
                # GPUs must be the same ones all along: the least room of the whole span counts
                least = least.least(rooms[until]) if least.gpus and needs.count else rooms[until]
            at = until + 1 if not rooms[until].holds(part, needs, row) else at + 1
            if at >= count:
                return None
            start = times[at]
