"""What a profile keeps to on nodes that others use as well: nobody's promise is delayed by anybody's jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from controller.core.book import Book
from controller.core.columns import Bools, joined
from controller.core.jobs import Job
from controller.core.placement import Place, Placer, Shape
from controller.core.plan import Plan
from controller.core.queue import Entry
from controller.core.state import State


class Pledge(Protocol):
    """What is promised to a job: to start at that moment at the latest."""

    @property
    def job(self) -> int:
        """To whom."""
        ...

    @property
    def at(self) -> float:
        """When."""
        ...


@dataclass(frozen=True, slots=True)
class Pinned:
    """The promise of a place in the common book."""

    job: int
    at: float


class Common:
    """One profile's side of a book that several write in.

    Among several, "enough nodes keep room" could not be kept to by all at once. So a promise has its nodes
    and GPUs here, from its moment on. Whoever starts finds room beside all promises, as long as it may run.
    """

    def __init__(self, state: State, placer: Placer, lasts: Callable[[Job], float], book: Book) -> None:
        self.plan = Plan(state, placer, lasts, book)
        self._lasts = lasts
        self._placer = placer
        self._book = book
        self._state = state

    @property
    def edition(self) -> int:
        """Grows when a promise goes or moves: others may be better off."""
        return self._book.edition

    def pledge(self, job: int) -> Pinned | None:
        """What is promised to one of this profile."""
        promise = self.plan.promises.get(job)
        return None if promise is None else Pinned(job, promise.start)

    def due(self, now: float) -> bool:
        """Has the moment come for which something was promised?"""
        return any(promise.start <= now for promise in self.plan.promises.values())

    def promise(self, head: Entry | None, now: float) -> None:
        """Promise the first waiting job its earliest start, and nobody else anything."""
        if head is not None or self.plan.promises:
            self.plan.update([] if head is None else [(head[1], None)], now)

    def find(self, job: Job, barred: Bools | None, now: float, fewer: int | None = None) -> Place | None:
        """A place for the job that is in the way of no promise to others, or one on `fewer` nodes at most."""
        shape, length = self._placer.shape(job.ask), self._lasts(job)
        if shape is None:
            return None
        with self.plan.aside(job.id, now):
            if not self._lends(job, now):
                return None
            barred = joined(barred, self._book.barred(shape.part, length, now))
            if fewer is None:
                place = self._placer.find(job.ask, barred)
            else:
                place = self._placer.find_fewer(job.ask, barred, fewer)
            return place and self._beside(shape, place, length, now)

    def _beside(self, shape: Shape, place: Place, length: float, now: float) -> Place:
        """The same place, with GPUs that are promised to nobody."""
        nodes = self._state.nodes.by_name
        rows = [nodes[each.node].row for each in place.allocations]
        rooms = self._book.rooms(rows, length, now)
        return self._placer.settle(shape, rows, rooms) if rooms else place

    def _lends(self, job: Job, now: float) -> bool:
        """Are its licences promised to nobody? If there are too few by now, that is for others to say."""
        wanted = job.ask.licences
        return self._state.licences.short(wanted) or self._book.lends(wanted, self._lasts(job), now)

    def keeps_licences(self, job: Job, now: float) -> bool:
        """Are licences that the job could have now promised to others?"""
        with self.plan.aside(job.id, now):
            return not self._lends(job, now)

    def in_the_way(self, job: Job, now: float) -> Bools | None:
        """Nodes on which the job would be in the way of a promise to others if it started now."""
        shape = self._placer.shape(job.ask)
        if shape is None:
            return None
        with self.plan.aside(job.id, now):
            return self._book.barred(shape.part, self._lasts(job), now)

    def promised(self, row: int, to: Job) -> list[tuple[float, int]]:
        """The starts promised to others on a node, soonest first, and to whom."""
        return [each for each in self._book.promised(row) if each[1] != to.id]

    def pinned(self, job: Job, until: float, now: float) -> Bools | None:
        """Nodes on which something is promised to others before then."""
        with self.plan.aside(job.id, now):
            return self._book.pinned(until)
