"""Looks for the earliest hole for a job between what runs and what is promised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from controller.core.bits import NO_ROWS, Bits, bits_of, bits_where, first_of, rows_in
from controller.core.book import Book, Promise
from controller.core.gangs import ripe_from
from controller.core.gpus import quality_of
from controller.core.jobs import NEVER, Job
from controller.core.needs import Needs, needs_of
from controller.core.placement import CLASSES_KEPT, Place, Placer, Shape
from controller.core.requests import Part
from controller.core.reservations import Reservation, clear_from
from controller.core.room import Room, room_of
from controller.core.skyline import Start, when
from controller.core.state import State


@dataclass(frozen=True, slots=True)
class Hole:
    """Where a job may start, and from when on; by row the room there is, where that matters."""

    start: float
    rows: Bits
    rooms: Mapping[int, Room]


class Holes:
    """What is free when, to the jobs of one queue."""

    def __init__(self, state: State, placer: Placer, lasts: Callable[[Job], float], book: Book) -> None:
        self._state = state
        self._placer = placer
        self._lasts = lasts
        self._book = book
        self._open: dict[Part, Bits] = {}
        """By part the nodes that take work and may hold it, as of this turn."""
        self._turn = (-1, -1)

    def in_part(self, shape: Shape, job: Job, most: int | None, now: float) -> Hole | None:
        """The first start on fewer nodes of a gang that has waited long enough: on all there are then."""
        least = job.ask.least
        if least is None or self._placer.demanded(shape) is not None:
            return None
        found = self.earliest(replace(shape, nodes=least), job, max(now, ripe_from(job)))
        if found is None or most == least:
            return found
        starts = self._starts(self._suited(shape.part), shape.part, job, found.start, least)
        ready = sum(rows.bit_count() for start, rows, _ in starts if start == found.start)
        nodes = min(ready, shape.nodes if most is None else most)
        return self.earliest(replace(shape, nodes=nodes), job, found.start)

    def _suited(self, part: Part) -> Bits:
        """The nodes that may be promised to the part. As for its company, that of now counts."""
        nodes = self._state.nodes
        if self._turn != (nodes.layout, nodes.turns) or len(self._open) >= CLASSES_KEPT:
            self._open.clear()
            self._turn = nodes.layout, nodes.turns
        rows = self._open.get(part)
        if rows is None:
            rows = self._open[part] = bits_where(self._placer.possible(part))
        suited = self._book.expected.suited(part, nodes)
        return rows if suited is None else rows & bits_where(suited)

    def _starts(self, among: Bits, part: Part, job: Job, moment: float, enough: int) -> list[Start]:
        """The first start on each of these nodes from then on; once there are enough, later ones may lack."""
        nodes, duration, lines = self._state.nodes, self._lasts(job), self._book.lines
        against = self._state.reservations.against(job.user, job.spec.project)
        needs, kept = needs_of(part, nodes.columns), NO_ROWS
        for each in against:
            kept |= bits_of(self._state.reservations.rows(nodes, each))
        starts = lines.first_starts(part, needs, duration, moment, among & ~kept, enough)
        if among & kept:
            between = [self._between(row, part, needs, job, moment, against) for row in rows_in(among & kept)]
            starts += [found for found in between if found is not None]
            starts.sort(key=when)
        return starts

    def earliest(self, shape: Shape, job: Job, now: float) -> Hole | None:
        """The first moment from then on at which enough nodes can take the part together."""
        part, domains, moment = shape.part, self._placer.demanded(shape), now
        among, wanted, lasts = self._suited(part), job.ask.licences, self._lasts(job)
        enough = shape.nodes if domains is None else among.bit_count()
        while True:
            lent = self._book.stocks.first(wanted, lasts, moment)
            if lent is None:
                return None
            starts = self._starts(among, part, job, lent, enough)
            moment, rows = _reached(starts, shape.nodes)
            if moment == NEVER:
                return None
            if self._book.stocks.first(wanted, lasts, moment) != moment:
                continue
            if domains is not None and rows.bit_count() >= shape.nodes:
                chosen = domains.choose(np.array(list(rows_in(rows)), dtype=np.intp), None, shape.nodes)
                if not chosen and starts[0][0] < moment:
                    continue  # who could have started before may do as well: looked at from this moment on
                if not chosen:
                    later = [start for start, _, _ in starts if start > moment]
                    if not later:
                        return None
                    moment = min(later)
                    continue
                rows = bits_of(chosen)
            if rows.bit_count() >= shape.nodes:
                rows = first_of(rows, shape.nodes)
                return Hole(moment, rows, _rooms(starts, moment, rows) if part.wants_gpus else {})

    def place(self, part: Part, hole: Hole, old: Promise | None) -> Place:
        """What the part gets there; what was promised before if there is the same to choose from."""
        # A share of a GPU, and a GPU among several profiles, is chosen by what is there now as well.
        lasting = not part.wants_gpus or (part.gpus and not self._book.common)
        if old is not None and lasting and (old.rows, old.rooms) == (hole.rows, hole.rooms):
            return old.place
        nodes = self._state.nodes.rows
        chosen = [
            self._placer.allocate(part, nodes[row], self._room(part, row, hole.rooms.get(row)))
            for row in rows_in(hole.rows)
        ]
        allocations = tuple(allocation for allocation, _ in chosen)
        return Place(allocations, quality_of([choice for _, choice in chosen]))

    def _room(self, part: Part, row: int, room: Room | None) -> Room | None:
        """Among several, rather GPUs that are taken now: others can use meanwhile what is free."""
        if room is None or not self._book.common or not part.wants_gpus:
            return room
        nodes = self._state.nodes
        free = room_of(nodes, row).gpus
        taken = replace(
            room, gpus=[0 if now >= then else then for now, then in zip(free, room.gpus, strict=True)]
        )
        return taken if taken.holds(part, needs_of(part, nodes.columns), row) else room

    def _between(
        self, row: int, part: Part, needs: Needs, job: Job, since: float, against: list[Reservation]
    ) -> Start | None:
        """The first start on one node between the reservations in which the job may not run there."""
        here = self._state.reservations.on_row(self._state.nodes, row, against)
        lasts, lines = self._lasts(job), self._book.lines
        while True:
            found = lines.first_starts(part, needs, lasts, since, 1 << row, 1)
            if not found:
                return None
            clear = clear_from(here, found[0][0], job.span)
            if clear == found[0][0]:
                return found[0]
            if clear == NEVER:
                return None
            since = clear


def _rooms(starts: list[Start], moment: float, among: Bits) -> dict[int, Room]:
    return {
        rows.bit_length() - 1: room
        for start, rows, room in starts
        if start == moment and room is not None and rows & among
    }


def _reached(starts: list[Start], nodes: int) -> tuple[float, Bits]:
    """When so many nodes have had their first start, and which of them have it then."""
    found, moment, rows = 0, NEVER, NO_ROWS
    for start, each, _ in starts:
        if start != moment:
            if found >= nodes:
                break
            moment, rows = start, NO_ROWS
        found += each.bit_count()
        rows |= each
    return (moment, rows) if found >= nodes else (NEVER, NO_ROWS)
