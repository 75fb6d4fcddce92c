"""Conservative backfill: every waiting job has a promised start, and nothing that comes later delays it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from controller.core.book import Book, Promise
from controller.core.holes import Holes
from controller.core.jobs import NEVER, Job
from controller.core.placement import Place, Placer
from controller.core.state import State


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
        self._holes = Holes(state, placer, lasts, self.book)

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
                self.book.lift(promise)
                self.promise(self._state.jobs[job], most, now, promise)
                if self.promises.get(job) is not promise:
                    self.book.note_moved()

    def promise(self, job: Job, most: int | None, now: float, old: Promise | None = None) -> None:
        """Promise the job its earliest start, if it has one. `old` was lifted for that."""
        new = self._best(job, most, now, old)
        if old is not None and new == old:
            self.promises[job.id] = old
            self.book.lay_back(old)
            return
        if old is not None:
            self.book.drop()
        if new is not None:
            self.promises[job.id] = new
            self.book.put(new)

    def _best(self, job: Job, most: int | None, now: float, old: Promise | None) -> Promise | None:
        shape = self._placer.shape(job.ask)
        if shape is None:
            return None
        found = self._holes.earliest(shape, job, now) if most is None else None
        fewer = self._holes.in_part(shape, job, most, now)
        in_part = fewer is not None and (found is None or fewer.start < found.start)
        found = fewer if in_part else found
        if found is None:
            return None
        part, end, place = (
            shape.part,
            found.start + self._lasts(job),
            self._holes.place(shape.part, found, old),
        )
        wanted = job.ask.licences
        return Promise(found.start, end, found.rows, place, part, in_part, wanted, most, found.rooms)
