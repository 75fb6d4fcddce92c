"""The room of all nodes over time: those without GPUs together, as long as that is less to look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from controller.core.bits import NO_ROWS, Bits
from controller.core.events import Allocation
from controller.core.needs import Needs
from controller.core.nodes import Node, Nodes
from controller.core.requests import Part
from controller.core.room import Room, room_of
from controller.core.singles import Singles
from controller.core.skyline import Free, Skyline, Start, when
from controller.core.timeline import Timeline

if TYPE_CHECKING:
    from controller.core.book import Promise

SMALL = 256
"""A skyline of this size is not worth a thought."""
CHEAPER = 8
"""To write over an entry in it costs so much less than over a span on a line of one node."""


class Lines:
    """A node with GPUs has a line of its own: these have to be the same ones all along.

    Of other nodes only amounts count. They share a skyline, in which a job on many nodes is one entry. Where
    mostly single nodes change, that is more to look at than a line for each; then they get those.
    """

    def __init__(self, nodes: Mapping[str, Node], singles: Singles, sky: Skyline) -> None:
        self._nodes = nodes
        self._singles = singles
        self._sky = sky
        self._big = SMALL
        self._past: Promise | None = None

    @classmethod
    def of(cls, nodes: Nodes, now: float) -> Lines:
        """What the nodes have free, from now on for ever."""
        rooms = {node.row: room_of(nodes, node.row) for node in nodes.rows}
        lines = [Timeline(nodes.rows[row], now, room) for row, room in rooms.items() if room.gpus]
        sky = Skyline(now, {row: room for row, room in rooms.items() if not room.gpus})
        return cls(nodes.by_name, Singles(now, lines), sky)

    def twin(self, nodes: Nodes) -> Lines:
        """The same on a copy of the nodes."""
        return Lines(nodes.by_name, self._singles.twin(nodes.rows), self._sky.twin())

    def __len__(self) -> int:
        return (self._singles.rows | self._sky.rows).bit_count()

    def forget(self, now: float) -> None:
        """Drop what is over."""
        self._singles.forget(now)
        self._sky.forget(now)
        if self._sky.size > self._big:
            self._big = 2 * self._sky.size
            if self._sky.size > CHEAPER * self._sky.spans_at_once:
                self.scatter(now)

    def scatter(self, now: float) -> None:
        """Give every node a line of its own."""
        sky, self._sky = self._sky, Skyline(now, {})
        self._singles.add(sky.line(node) for node in self._nodes.values() if sky.rows >> node.row & 1)

    def give(self, allocations: Iterable[Allocation], start: float, end: float, sign: int) -> None:
        """Put allocations back (1) or take them out (-1) from `start` until `end`."""
        together: dict[Free, Bits] = {}
        for each in allocations:
            row = self._nodes[each.node].row
            if self._singles.rows >> row & 1:
                self._singles.give(row, start, end, each, sign)
            else:
                amounts = each.cpu_milli, each.memory_mib, each.scratch_mib
                together[amounts] = together.get(amounts, NO_ROWS) | 1 << row
        for amounts, rows in together.items():
            self._sky.give(start, end, rows, amounts, sign)

    def write(self, promise: Promise, sign: int) -> None:
        """Strike a promise out (1) or write it down (-1)."""
        self._write_singles(promise, sign)
        self._write_sky(promise, sign)

    def lift(self, promise: Promise) -> None:
        """Look past a promise, until it is dropped or laid back."""
        self._past = promise
        self._singles.lift(promise.rows & self._singles.rows)
        self._write_singles(promise, 1)

    def lay_back(self) -> None:
        """The promise that was lifted stays."""
        self._singles.lay_back()
        self._past = None

    def drop(self) -> None:
        """The promise that was lifted goes."""
        self._singles.drop()
        if self._past is not None:
            self._write_sky(self._past, 1)
        self._past = None

    def _write_singles(self, promise: Promise, sign: int) -> None:
        single = promise.rows & self._singles.rows
        for each in promise.place.allocations if single else ():
            row = self._nodes[each.node].row
            if single >> row & 1:
                self._singles.give(row, promise.start, promise.end, each, sign)

    def _write_sky(self, promise: Promise, sign: int) -> None:
        part = promise.part
        amounts = part.cpu_milli, part.memory_mib, part.scratch_mib
        self._sky.give(promise.start, promise.end, promise.rows & self._sky.rows, amounts, sign)

    def least(self, row: int, since: float, duration: float) -> Room:
        """What one node has free all the time from `since` on for so long."""
        if self._singles.rows >> row & 1:
            return self._singles.line(row).least(since, duration)
        return self._sky.least(row, since, duration)

    def first_starts(
        self, part: Part, needs: Needs, duration: float, since: float, among: Bits, enough: int
    ) -> list[Start]:
        """The first start on each of these nodes from `since` on, the soonest first.

        Once there are enough, others that start later may be left out.
        """
        starts: list[Start] = []
        if among & self._sky.rows and not needs.count:
            starts = self._sky.first_starts(part, duration, since, among, enough, self._past)
        if among & self._singles.rows:
            starts += self._singles.first_starts(part, needs, duration, since, among, enough)
            starts.sort(key=when)
        return starts
