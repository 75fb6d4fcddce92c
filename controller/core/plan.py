"""Conservative backfill: every waiting job has a promised start, and nothing that comes later delays it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from controller.core.book import Book, Promise
from controller.core.gangs import ripe_from
from controller.core.gpus import quality_of
from controller.core.jobs import NEVER, Job
from controller.core.needs import Needs, needs_of
from controller.core.placement import Place, Placer, Shape
from controller.core.requests import Part
from controller.core.reservations import Reservation, clear_from
from controller.core.room import Room, room_of
from controller.core.state import State
from controller.core.timeline import Timeline


class Plan:
    """The promises to those who wait in one queue.

    A promise moves only forward: when room appears, jobs are taken in queue order, each is taken out and
    put back at its earliest hole, the others staying where they are. A promise for this very moment stays.
    """

    def __init__(
        self, state: State, placer: Placer, lasts: Callable[[Job], float], book: Book | None = None
    ) -> None:
        self._lasts = lasts
        self.promises: dict[int, Promise] = {}
        self._state = state
        self._placer = placer
        self.book = Book(state) if book is None else book
        self.book.plans.append(self)
        self.refused: set[int] = set()
        """Those whose moment came in vain: no promise is made to them until something changes."""
        self._seen = (-1, -1)

    def resume(self, other: Plan) -> None:
        """Go on from what another has promised, on the same nodes; if that is void it stays so."""
        if self.book.resume(other.book):
            self.promises, self.refused = dict(other.promises), set(other.refused)
            current = other._seen == (other._state.nodes.gains, other.book.edition)
            self._seen = (self._state.nodes.gains, self.book.edition) if current else (-1, -1)

    def update(self, may: Iterable[tuple[int, int | None]], now: float) -> None:
        """Bring the plan up to the state.

        `may` are the waiting jobs that may have a promise, in order, each with the most nodes it may have;
        None: all it asks for.
        """
        order = dict(may)
        self.book.refresh(now)
        for job in [job for job in self.promises if job not in order]:
            self.forget(job)
        if self._seen != (self._state.nodes.gains, self.book.edition):
            self._pull_forward(order, now)
        for job, most in order.items():
            if job not in self.promises and job not in self.refused:
                self.promise(self._state.jobs[job], most, now)
        self._seen = self._state.nodes.gains, self.book.edition

    def forget(self, job: int) -> None:
        """The job has no promise any more; it gets another with the next update."""
        self.refused.discard(job)
        promise = self.promises.pop(job, None)
        if promise is not None:
            self.book.take(promise)
            self.book.note_moved()

    def retry(self) -> None:
        """Who was refused may be luckier now."""
        self.refused.clear()

    def forget_all(self) -> None:
        """Take all promises back."""
        for job in list(self.promises):
            self.forget(job)

    def forget_gone(self) -> None:
        """Take back what was promised to those who do not wait any more."""
        for job in [job for job in self.promises if job not in self._state.queue]:
            self.forget(job)

    @contextmanager
    def aside(self, job: int, now: float) -> Iterator[None]:
        """Look for a place for the job as if nothing had been promised to it."""
        self.book.sync(now)
        promise = self.promises.pop(job, None)
        if promise is None:
            yield
            return
        self.book.take(promise)
        try:
            yield
        finally:
            self.promises[job] = promise
            self.book.put(promise)

    def ripe_after(self, now: float) -> float:
        """The next promised start of a gang in part: nothing need happen then but that time has passed."""
        starts = (each.start for each in self.promises.values() if each.in_part and each.start > now)
        return min(starts, default=NEVER)

    def due(self, now: float) -> Iterator[tuple[int, Place]]:
        """Jobs whose promised moment has come; each is to be started before the next is asked for."""
        for job in [job for job, promise in self.promises.items() if promise.start <= now]:
            promise = self.promises.pop(job)
            self.book.keep(self._state.jobs[job], promise)
            yield job, promise.place

    def refuse(self, job: int, now: float) -> None:
        """What was due may not start after all: others may have its room."""
        self.book.unkeep(job, now)
        self.book.note_moved()
        self.refused.add(job)
        self._seen = (-1, -1)

    def _pull_forward(self, order: Mapping[int, int | None], now: float) -> None:
        for job, most in order.items():
            promise = self.promises.get(job)
            if promise is None and job not in self.refused:
                self.promise(self._state.jobs[job], most, now)
            elif promise is not None and promise.start > now:
                del self.promises[job]
                self.book.take(promise)
                self.promise(self._state.jobs[job], most, now)
                if self.promises.get(job) != promise:
                    self.book.note_moved()

    def promise(self, job: Job, most: int | None, now: float) -> None:
        """Promise the job its earliest start, if it has one."""
        shape = self._placer.shape(job.ask)
        if shape is None:
            return
        found = self._earliest(shape, job, now) if most is None else None
        fewer = self._in_part(shape, job, most, now)
        in_part = fewer is not None and (found is None or fewer[0] < found[0])
        found = fewer if in_part else found
        if found is not None:
            start, place = found
            end = start + self._lasts(job)
            promise = Promise(start, end, place, shape.part, in_part, job.ask.licences, most)
            self.promises[job.id] = promise
            self.book.put(promise)

    def _in_part(self, shape: Shape, job: Job, most: int | None, now: float) -> tuple[float, Place] | None:
        """The first start on fewer nodes of a gang that has waited long enough: on all there are then."""
        least = job.ask.least
        if least is None or self._placer.demanded(shape) is not None:
            return None
        found = self._earliest(replace(shape, nodes=least), job, max(now, ripe_from(job)))
        if found is None or most == least:
            return found
        start = found[0]
        starts = self._starts(self._suited(shape.part), shape.part, job, start)
        ready = sum(first[0] == start for first, _ in starts)
        nodes = min(ready, shape.nodes if most is None else most)
        return self._earliest(replace(shape, nodes=nodes), job, start)

    def _suited(self, part: Part) -> list[Timeline]:
        """The nodes that may be promised to the part. As for its company, that of now counts."""
        may, suited = self._placer.possible(part), self.book.expected.suited(part, self._state.nodes)
        return [self.book.lines[row] for row in np.flatnonzero(may if suited is None else may & suited)]

    def _starts(
        self, lines: list[Timeline], part: Part, job: Job, moment: float
    ) -> list[tuple[tuple[float, Room], Timeline]]:
        """The first start on each of these nodes from then on."""
        columns, duration = self._state.nodes.columns, self._lasts(job)
        against = self._state.reservations.against(job.user, job.spec.project)
        needs = needs_of(part, columns)
        if against:
            return [
                (found, line)
                for line in lines
                if (found := self._between(line, part, needs, job, moment, against))
            ]
        return [(found, line) for line in lines if (found := line.first_start(part, needs, duration, moment))]

    def _earliest(self, shape: Shape, job: Job, now: float) -> tuple[float, Place] | None:
        """The first moment from then on at which enough nodes can take the part together."""
        part, domains, moment = shape.part, self._placer.demanded(shape), now
        lines = self._suited(part)
        while True:
            lent = self.book.stocks.first(job.ask.licences, self._lasts(job), moment)
            if lent is None:
                return None
            starts = self._starts(lines, part, job, lent)
            if len(starts) < shape.nodes:
                return None
            starts.sort(key=lambda each: each[0][0])
            moment = starts[shape.nodes - 1][0][0]
            if self.book.stocks.first(job.ask.licences, self._lasts(job), moment) != moment:
                continue
            ready = [(found, line) for found, line in starts if found[0] == moment]
            if domains is not None and len(ready) >= shape.nodes:
                rooms = {line.node.row: (found, line) for found, line in ready}
                rows = domains.choose(np.array(sorted(rooms), dtype=np.intp), None, shape.nodes)
                if not rows and starts[0][0][0] < moment:
                    continue  # who could have started before may do as well: looked at from this moment on
                if not rows:
                    later = [found[0] for found, _ in starts if found[0] > moment]
                    if not later:
                        return None
                    moment = min(later)
                    continue
                ready = [rooms[row] for row in rows]
            if len(ready) >= shape.nodes:
                chosen = [
                    self._placer.allocate(part, line.node, self._room(part, line, found[1]))
                    for found, line in ready[: shape.nodes]
                ]
                allocations = tuple(allocation for allocation, _ in chosen)
                return moment, Place(allocations, quality_of([choice for _, choice in chosen]))

    def _room(self, part: Part, line: Timeline, room: Room) -> Room:
        """Among several, rather GPUs that are taken now: others can use meanwhile what is free."""
        if not self.book.common or not part.wants_gpus:
            return room
        nodes, row = self._state.nodes, line.node.row
        free = room_of(nodes, row).gpus
        taken = replace(
            room, gpus=[0 if now >= then else then for now, then in zip(free, room.gpus, strict=True)]
        )
        return taken if taken.holds(part, needs_of(part, nodes.columns), row) else room

    def _between(
        self,
        line: Timeline,
        part: Part,
        needs: Needs,
        job: Job,
        since: float,
        against: list[Reservation],
    ) -> tuple[float, Room] | None:
        """The first start on one node between the reservations in which the job may not run there."""
        here = self._state.reservations.on_row(self._state.nodes, line.node.row, against)
        found = line.first_start(part, needs, self._lasts(job), since)
        while found is not None:
            clear = clear_from(here, found[0], job.span)
            if clear == found[0]:
                return found
            if clear == NEVER:
                return None
            found = line.first_start(part, needs, self._lasts(job), clear)
        return None
