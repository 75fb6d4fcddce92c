"""The room of all nodes over time: those without GPUs together, as long as that is less to look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from controller.core.bits import NO_ROWS, Bits, rows_in
from controller.core.events import Allocation
from controller.core.needs import Needs
from controller.core.nodes import Node, Nodes
from controller.core.requests import Part
from controller.core.room import Room, room_of
from controller.core.skyline import Free, Skyline, Start, when
from controller.core.timeline import Timeline

if TYPE_CHECKING:
    from controller.core.book import Promise

SMALL = 64
"""A skyline of this size is not worth a thought."""


class Lines:
    """A node with GPUs has a line of its own: these have to be the same ones all along.

    Of other nodes only amounts count. They share a skyline, in which a job on many nodes is one entry. Where
    mostly single nodes change, that is more to look at than a line for each; then they get those.
    """

    def __init__(self, nodes: Mapping[str, Node], lines: Iterable[Timeline], sky: Skyline) -> None:
        self._nodes = nodes
        self._alone = {line.node.row: line for line in lines}
        self._sky = sky
        self._big = SMALL
        self._past: Promise | None = None
        self._aside: dict[int, Timeline] = {}
        """The lines on which the promise is that is looked past: others stand for them."""

    @classmethod
    def of(cls, nodes: Nodes, now: float) -> Lines:
        """What the nodes have free, from now on for ever."""
        rooms = {node.row: room_of(nodes, node.row) for node in nodes.rows}
        alone = [Timeline(nodes.rows[row], now, room) for row, room in rooms.items() if room.gpus]
        sky = Skyline(now, {row: room for row, room in rooms.items() if not room.gpus})
        return cls(nodes.by_name, alone, sky)

    def twin(self, nodes: Nodes) -> Lines:
        """The same on a copy of the nodes."""
        alone = [line.twin(nodes.rows[row]) for row, line in self._alone.items()]
        return Lines(nodes.by_name, alone, self._sky.twin())

    def __len__(self) -> int:
        return len(self._alone) + self._sky.rows.bit_count()

    def forget(self, now: float) -> None:
        """Drop what is over."""
        for line in self._alone.values():
            line.forget(now)
        self._sky.forget(now)
        if self._sky.size > self._big:
            self._big = 2 * self._sky.size
            if self._sky.size > self._sky.apart:
                self.scatter(now)

    def scatter(self, now: float) -> None:
        """Give every node a line of its own."""
        lines = [self._sky.line(node) for node in self._nodes.values() if self._sky.rows >> node.row & 1]
        self._alone |= {line.node.row: line for line in lines}
        self._sky = Skyline(now, {})

    def give(self, allocations: Iterable[Allocation], start: float, end: float, sign: int) -> None:
        """Put allocations back (1) or take them out (-1) from `start` until `end`."""
        together: dict[Free, Bits] = {}
        for each in allocations:
            row = self._nodes[each.node].row
            if row in self._alone:
                self._alone[row].give(start, end, each, sign)
            else:
                amounts = each.cpu_milli, each.memory_mib, each.scratch_mib
                together[amounts] = together.get(amounts, NO_ROWS) | 1 << row
        for amounts, rows in together.items():
            self._sky.give(start, end, rows, amounts, sign)

    def write(self, promise: Promise, sign: int) -> None:
        """Strike a promise out (1) or write it down (-1)."""
        self._write_alone(promise, sign)
        self._write_sky(promise, sign)

    def lift(self, promise: Promise) -> None:
        """Look past a promise, until it is dropped or laid back."""
        self._past = promise
        for row in rows_in(promise.rows & ~self._sky.rows):
            line = self._aside[row] = self._alone[row]
            self._alone[row] = line.twin(line.node)
        self._write_alone(promise, 1)

    def lay_back(self) -> None:
        """The promise that was lifted stays."""
        self._alone |= self._aside
        self._aside.clear()
        self._past = None

    def drop(self) -> None:
        """The promise that was lifted goes."""
        if self._past is not None:
            self._write_sky(self._past, 1)
        self._aside.clear()
        self._past = None

    def _write_alone(self, promise: Promise, sign: int) -> None:
        if promise.rows & ~self._sky.rows:
            for each in promise.place.allocations:
                alone = self._alone.get(self._nodes[each.node].row)
                if alone is not None:
                    alone.give(promise.start, promise.end, each, sign)

    def _write_sky(self, promise: Promise, sign: int) -> None:
        part = promise.part
        amounts = part.cpu_milli, part.memory_mib, part.scratch_mib
        self._sky.give(promise.start, promise.end, promise.rows & self._sky.rows, amounts, sign)

    def least(self, row: int, since: float, duration: float) -> Room:
        """What one node has free all the time from `since` on for so long."""
        alone = self._alone.get(row)
        return self._sky.least(row, since, duration) if alone is None else alone.least(since, duration)

    def first_starts(
        self, part: Part, needs: Needs, duration: float, since: float, among: Bits, enough: int
    ) -> list[Start]:
        """The first start on each of these nodes from `since` on, the soonest first.

        Once there are enough, others that start later may be left out.
        """
        starts: list[Start] = []
        if among & self._sky.rows and not needs.count:
            starts = self._sky.first_starts(part, duration, since, among, enough, self._past)
        for row, line in self._alone.items():
            if among >> row & 1:
                found = line.first_start(part, needs, duration, since)
                if found is not None:
                    starts.append((found[0], 1 << row, found[1]))
        starts.sort(key=when)
        return starts
