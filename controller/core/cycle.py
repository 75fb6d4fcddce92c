"""One pass over the queue: in order while jobs fit, then what may pass the first that does not."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from controller.core.events import JobPlaced
from controller.core.placement import Place, Placer
from controller.core.plugin import Backfill
from controller.core.queue import Entry
from controller.core.requests import Ask
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
        self._head: Entry | None = None
        self._seen = (-1, -1)

    def run(self, now: float) -> Iterator[JobPlaced]:
        """Yield placements one by one; the caller makes each true before asking for the next."""
        queue, nodes = self.state.queue, self.state.nodes
        fresh = [job for job in queue.fresh if job in queue]
        queue.fresh.clear()
        if not len(queue):
            return
        if self._nothing_changed(fresh):
            candidates = sorted(queue.entry(job) for job in fresh)
        else:
            self._head = self.promise = None
            yield from self._in_order(now)
            self._seen = (nodes.gains, nodes.layout)
            if self._head is None or self.mode is Backfill.NONE:
                return
            if self.mode is not Backfill.GREEDY:
                ask = self.state.jobs[self._head[1]].ask
                self.promise = cast_shadow(self.state, self.placer, ask, self._head[1], now)
            candidates = [entry for entry in self._unblocked() if entry != self._head]
        if self.mode is not Backfill.NONE:
            yield from self._behind(candidates, now)

    def _nothing_changed(self, fresh: list[int]) -> bool:
        head, queue = self._head, self.state.queue
        return (
            head is not None
            and head[1] in queue
            and queue.entry(head[1]) == head
            and self._seen == (self.state.nodes.gains, self.state.nodes.layout)
            and all(queue.entry(job) > head for job in fresh)
        )

    def _in_order(self, now: float) -> Iterator[JobPlaced]:
        """Start the first job again and again, until the first does not fit."""
        lanes = self.state.queue.lanes
        heads = [(head, ask) for ask, lane in lanes.items() if (head := lane.head()) is not None]
        order = [(head, index) for index, (head, _) in enumerate(heads)]
        heapq.heapify(order)
        while order:
            head, index = order[0]
            ask = heads[index][1]
            place = self._find(ask)
            if place is None:
                self._head = head
                return
            yield self._placed(head[1], place, now)
            lane = lanes.get(ask)
            following = lane.head() if lane is not None else None
            if following is None:
                heapq.heappop(order)
            else:
                heapq.heapreplace(order, (following, index))

    def _unblocked(self) -> Iterable[Entry]:
        """All waiting jobs, in order, of classes that may fit now."""
        gains = self.state.nodes.gains
        lanes = [lane for lane in self.state.queue if lane.blocked_at != gains]
        return heapq.merge(*lanes) if len(lanes) > 1 else (entry for lane in lanes for entry in lane)

    def _behind(self, candidates: Iterable[Entry], now: float) -> Iterator[JobPlaced]:
        """Start what does not break the promise."""
        jobs, gains, promise = self.state.jobs, self.state.nodes.gains, self.promise
        if self.mode is Backfill.EASY_SJBF:
            candidates = sorted(candidates, key=lambda entry: (jobs[entry[1]].limit, entry))
        too_long: set[Ask] = set()
        for _, job_id in candidates:
            job = jobs[job_id]
            lane = self.state.queue.lanes[job.ask]
            if lane.blocked_at == gains:
                continue
            if promise is None or now + job.limit <= promise.at:
                place = self._find(job.ask)
                if place is not None and promise is not None:
                    promise.pass_by(place)
            elif job.ask in too_long:
                continue
            else:
                place = self._find_beside(job.ask, promise)
                if place is None:
                    too_long.add(job.ask)
                else:
                    promise.take(place)
            if place is not None:
                yield self._placed(job_id, place, now)

    def _find(self, ask: Ask) -> Place | None:
        place = self.placer.find(ask)
        if place is None:
            self.state.queue.lanes[ask].blocked_at = self.state.nodes.gains
        return place

    def _find_beside(self, ask: Ask, promise: Shadow) -> Place | None:
        shape = self.placer.shape(ask)
        return None if shape is None else find_beside(self.placer, shape, promise)

    def _placed(self, job: int, place: Place, now: float) -> JobPlaced:
        return JobPlaced(job, now, self.state.jobs[job].attempt + 1, place.allocations, place.quality)
