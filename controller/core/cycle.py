"""One pass over the queue: in order while jobs fit, then what may pass the first that does not."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from controller.core.events import JobPlaced
from controller.core.jobs import NEVER
from controller.core.placement import Place, Placer
from controller.core.plugin import Backfill
from controller.core.queue import Entry, Lane
from controller.core.shadow import Shadow, cast_shadow, find_beside
from controller.core.state import State


class Cycle:
    """Runs passes. Between them it remembers the first waiting job and the promise made to it.

    That memory saves work and never changes a decision: as long as no room has appeared and the same job is
    first, whatever could not start in the last pass cannot start in this one, and only new jobs matter.
    """

    def __init__(self, state: State, placer: Placer) -> None:
        self.state = state
        self.placer = placer
        self.mode = placer.pipeline.backfill
        self.promise: Shadow | None = None
        self.head: Entry | None = None
        self._seen = (-1, -1)

    def run(self, now: float) -> Iterator[JobPlaced]:
        """Yield placements one by one; the caller makes each true before asking for the next."""
        queue, nodes = self.state.queue, self.state.nodes
        fresh = [job for job in queue.fresh if job in queue]
        queue.fresh.clear()
        if not len(queue):
            return
        if self._nothing_changed(fresh):
            if self.mode is not Backfill.NONE:
                lanes = [(job, lane) for job in fresh if (lane := queue.lane(job)) is not None]
                yield from self._behind(_Walk(self, lane, [queue.entry(job)], now) for job, lane in lanes)
            return
        self.head = self.promise = None
        yield from self._in_order(now)
        self._seen = (nodes.gains, nodes.layout)
        if self.head is None or self.mode is Backfill.NONE:
            return
        if self.mode is not Backfill.GREEDY:
            ask = self.state.jobs[self.head[1]].ask
            self.promise = cast_shadow(self.state, self.placer, ask, self.head[1], now)
        yield from self._behind([_Walk(self, lane, lane, now) for lane in self._hopeful()])

    def _nothing_changed(self, fresh: list[int]) -> bool:
        head, queue = self.head, self.state.queue
        return (
            head is not None
            and head[1] in queue
            and queue.entry(head[1]) == head
            and self._seen == (self.state.nodes.gains, self.state.nodes.layout)
            and all(queue.entry(job) > head for job in fresh)
        )

    def _in_order(self, now: float) -> Iterator[JobPlaced]:
        """Start the first job again and again, until the first does not fit."""
        order = [(head, lane.ask) for lane in self.state.queue if (head := lane.head()) is not None]
        lanes = {head: self.state.queue.lanes[ask] for head, ask in order}
        heads = list(lanes)
        heapq.heapify(heads)
        while heads:
            head = heads[0]
            lane = lanes.pop(head)
            place = self.find(lane)
            if place is None:
                self.head = head
                return
            yield self.placed(head[1], place, now)
            following = lane.head()
            if following is None:
                heapq.heappop(heads)
            else:
                lanes[following] = lane
                heapq.heapreplace(heads, following)

    def _hopeful(self) -> Iterator[Lane]:
        """Classes of which one job at least may fit somewhere now."""
        gains, most = self.state.nodes.gains, self.state.nodes.most
        for lane in self.state.queue:
            ask = lane.ask
            if lane.blocked_at != gains and (ask.nodes is None or most.may_hold(ask.part)):
                yield lane

    def _behind(self, walks: Iterable[_Walk]) -> Iterator[JobPlaced]:
        """Start what does not break the promise, best rank (or shortest) first."""
        waiting = [(key, number, walk) for number, walk in enumerate(walks) if (key := walk.advance())]
        heapq.heapify(waiting)
        while waiting:
            _, number, walk = waiting[0]
            placed = walk.place()
            if placed is not None:
                yield placed
            key = walk.advance()
            if key is None:
                heapq.heappop(waiting)
            else:
                heapq.heapreplace(waiting, (key, number, walk))

    def find(self, lane: Lane) -> Place | None:
        """A place for the first of a class; without one the class is blocked until room appears."""
        place = self.placer.find(lane.ask)
        if place is None:
            lane.blocked_at = self.state.nodes.gains
        return place

    def placed(self, job: int, place: Place, now: float) -> JobPlaced:
        """The fact."""
        return JobPlaced(job, now, self.state.jobs[job].attempt + 1, place.allocations, place.quality)


class _Walk:
    """Goes through the jobs of one class that wait behind the first, and starts those that may pass."""

    __slots__ = ("_cycle", "_entries", "_gains", "_job", "_lane", "_long", "_now", "_shape", "_too_long")

    def __init__(self, cycle: Cycle, lane: Lane, entries: Iterable[Entry], now: float) -> None:
        self._cycle = cycle
        self._lane = lane
        self._now = now
        self._gains = cycle.state.nodes.gains
        self._shape = cycle.placer.shape(lane.ask)
        self._job = 0
        self._long = False
        self._too_long = False
        self._entries: Iterator[Entry] = iter(())
        if self._shape is not None:
            if cycle.mode is Backfill.EASY_SJBF:
                entries = sorted(entries, key=self._key)
            self._entries = iter(entries)

    def _blocked(self) -> bool:
        """Nothing of this class fits now, whoever it is."""
        if self._lane.blocked_at == self._gains or self._shape is None:
            return True
        return not self._cycle.state.nodes.most.may_hold(self._shape.part)

    def _key(self, entry: Entry) -> tuple[float, Entry]:
        return self._cycle.state.jobs[entry[1]].limit, entry

    def advance(self) -> tuple[float, Entry] | None:
        """Go to the next job worth a try; its place among those of all classes, or None at the end."""
        if self._blocked():
            return None
        cycle, jobs = self._cycle, self._cycle.state.jobs
        window = NEVER if cycle.promise is None else cycle.promise.at - self._now
        for entry in self._entries:
            limit = jobs[entry[1]].limit
            self._long = limit > window
            if entry != cycle.head and not (self._long and self._too_long):
                self._job = entry[1]
                return (limit if cycle.mode is Backfill.EASY_SJBF else 0.0), entry
        return None

    def place(self) -> JobPlaced | None:
        """Start the current job, unless it finds no place or would break the promise."""
        cycle, promise = self._cycle, self._cycle.promise
        if promise is None or not self._long:
            place = cycle.find(self._lane)
            if place is not None and promise is not None:
                promise.pass_by(place)
        else:
            place = find_beside(cycle.placer, self._shape, promise) if self._shape else None
            if place is None:
                self._too_long = True
            else:
                promise.take(place)
        return None if place is None else cycle.placed(self._job, place, self._now)
