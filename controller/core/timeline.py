"""The room of one node over time, as far as it is known: what runs, and what is promised."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from controller.core.events import Allocation
from controller.core.needs import Needs
from controller.core.nodes import Node
from controller.core.requests import Part
from controller.core.room import Room

Found = tuple[float, Room] | None
"""A start, and the least room meanwhile; None: there is none."""


class Timeline:
    """`rooms[i]` holds from `times[i]` until the next time, the last one for ever.

    Rooms are not changed but replaced: twins share them, and what each of them holds is found out once.
    """

    __slots__ = ("_held", "_rooms", "_times", "node")

    def __init__(self, node: Node, now: float, room: Room) -> None:
        self.node = node
        self._times = [now]
        self._rooms = [room]
        self._held: list[dict[Part, bool]] = [{}]
        """By room: does it hold a part?"""

    def twin(self, node: Node) -> Timeline:
        """The same on a copy of the node."""
        other = Timeline(node, 0.0, self._rooms[0])
        other._times, other._rooms, other._held = self._times.copy(), self._rooms.copy(), self._held.copy()
        return other

    def go_on(self, when: float, room: Room) -> None:
        """From then on there is that room, as far as is known."""
        if room != self._rooms[-1]:
            self._times.append(when)
            self._rooms.append(room)
            self._held.append({})

    def forget(self, now: float) -> None:
        """Drop what is over."""
        over = bisect_right(self._times, now) - 1
        if over > 0:
            del self._times[:over], self._rooms[:over], self._held[:over]

    def give(self, start: float, end: float, allocation: Allocation, sign: int) -> None:
        """Put an allocation back (1) or take it out (-1) from `start` until `end`."""
        if end <= start:
            return
        first, last = self._cut(start), self._cut(end)
        for at in range(first, last):
            room = self._rooms[at] = self._rooms[at].twin()
            room.give(self.node, allocation, sign)
            self._held[at] = {}
        for at in (last, first):  # what ended here may have been the only difference
            if 0 < at < len(self._times) and self._rooms[at] == self._rooms[at - 1]:
                del self._times[at], self._rooms[at], self._held[at]

    def _cut(self, when: float) -> int:
        """Where the room from then on begins, in a segment of its own."""
        if when == float("inf"):
            return len(self._times)
        at = bisect_left(self._times, when)
        if at == len(self._times) or self._times[at] != when:
            self._times.insert(at, when)
            self._rooms.insert(at, self._rooms[at - 1])
            self._held.insert(at, self._held[at - 1])
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

    def first_start(self, part: Part, needs: Needs, duration: float, since: float) -> Found:
        """The first moment from `since` on when the part fits and may stay, with the least room meanwhile."""
        times, rooms, count = self._times, self._rooms, len(self._times)
        at, start = max(0, bisect_right(times, since) - 1), since
        while True:
            least, until, end = rooms[at], at, start + duration
            while fits := self._holds(until, part, needs):
                if until > at and needs.count:
                    # GPUs must be the same ones all along: the least room of the whole span counts
                    least = least.least(rooms[until])
                    if not least.holds(part, needs, self.node.row):
                        break
                until += 1
                if until == count or times[until] >= end:
                    return start, least
            at = at + 1 if fits else until + 1
            if at >= count:
                return None
            start = times[at]

    def _holds(self, at: int, part: Part, needs: Needs) -> bool:
        held = self._held[at]
        found = held.get(part)
        if found is None:
            found = held[part] = self._rooms[at].holds(part, needs, self.node.row)
        return found
