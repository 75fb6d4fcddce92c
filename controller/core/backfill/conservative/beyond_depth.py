"""Starts waiting jobs behind the depth: the greatest number of jobs that get a backfill reservation."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from controller.core.model.job import Job
from controller.core.model.request import PerNodeRequest
from controller.core.queue.queue import Lane, QueueEntry

if TYPE_CHECKING:
    from controller.core.backfill.cycle import Cycle
    from controller.core.backfill.start_rules.start_limits import Claims


SEARCHES = 100
"""The most slots (start times with nodes) that one cycle searches for jobs without a backfill reservation."""


class StartsBeyondDepth:
    """Starts jobs behind the depth that delay no backfill reservation. The depth is the greatest number of
    waiting jobs that get a reservation. The jobs behind the depth have none.

    1. Leave out the lanes (lists of jobs with the same request) whose request fits on too few nodes now.
    2. Go through the jobs of the other lanes in queue order. Leave out a job with a reservation, and the jobs
       of the same lane that run at least as long: they cannot start now either.
    3. Leave out a job that would break a limit if all jobs with reservations had started. Such a job would
       take quota from a job ahead of it.
    4. Search a slot (a start time and nodes) that begins now and overlaps no reservation. If there is one,
       start the job in this slot. Otherwise leave out the jobs of the same lane that run at least as long,
       because these jobs do not fit either.
    5. Stop after SEARCHES slot searches.

    Invariant: a job that is started here delays no job with a reservation. Cost: O(lanes) if no lane fits
    now, otherwise up to SEARCHES slot searches in addition.

    Example: the depth is 2, and one GPU of 8 is free. Jobs 5 and 6 (8 GPUs each) have reservations at 10:00
    and 12:00. At 9:00, job 7 (1 GPU, 2 h) does not start, because it would delay job 5. Job 8 (1 GPU, 1 h)
    starts.
    """

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._state = cycle.state

    def run(self, lanes: Iterable[Lane], now: float, start: Callable[[int], None]) -> None:
        """Run steps 1 to 5. Give each job to start a reservation that starts now, and call `start` with its
        id.
        """
        claims = self._claims(now) if self._state.limited else None
        candidates = [
            each
            for lane in self._fitting(lanes)
            if (each := _Candidates(self._cycle, lane, now)).advance() is not None
        ]
        waiting = [(each.position, number, each) for number, each in enumerate(candidates)]
        heapq.heapify(waiting)
        reservations, searches = self._cycle.reservations, 0
        while waiting and searches < SEARCHES:
            _, number, lane = waiting[0]
            job = lane.job
            over = None if claims is None else claims.breaks(job)
            if over is not None and not over.only_this_job:
                heapq.heappop(waiting)
                continue
            if over is None:
                searches += 1
                if reservations.reserve_now(job, now):
                    start(job.id)
                else:
                    lane.leave_out_longer()
            if lane.advance() is None:
                heapq.heappop(waiting)
            else:
                heapq.heapreplace(waiting, (lane.position, number, lane))

    def _claims(self, now: float) -> Claims:
        claims = self._cycle.limits.claims(now)
        for number, reserved in self._cycle.reservations.by_job.items():
            claims.add(self._state.jobs[number], reserved.most_nodes)
        return claims

    def _fitting(self, lanes: Iterable[Lane]) -> Iterator[Lane]:
        """Yield the lanes (lists of jobs with the same request) whose request fits on enough nodes now. Block
        the other lanes until resources become free.
        """
        placer, nodes = self._cycle.placer, self._state.nodes
        most: dict[PerNodeRequest, int] = {}
        for lane in lanes:
            if lane.fit.blocked_at == nodes.room_version:
                continue
            shape = placer.shape(lane.ask)
            if shape is None:
                continue
            if shape.part not in most:
                most[shape.part] = placer.max_nodes(shape.part) if nodes.may_hold(shape.part) else 0
            if most[shape.part] >= (lane.ask.least or shape.nodes):
                yield lane
            else:
                lane.fit.block(nodes.room_version)


class _Candidates:
    """The jobs of one lane (list of jobs with the same request) that have no backfill reservation, one after
    the other.
    """

    def __init__(self, cycle: Cycle, lane: Lane, now: float) -> None:
        self._cycle = cycle
        self._entries = iter(lane)
        self._too_long_s: float | None = None
        """A run time in seconds. Jobs of the lane that run this long or longer do not fit between the
        reservations now.
        """
        self._same = not cycle.state.bars_nodes
        """True if no node is barred for single jobs (`State.bars_nodes`). The jobs of the lane then differ
        only in their run times.
        """
        self.job: Job
        self.position: QueueEntry
        self._now = now

    def advance(self) -> Job | None:
        """Go to the next job that may fit now, and return the job. Return None if no job is left."""
        cycle, reservations = self._cycle, self._cycle.reservations
        for entry in self._entries:
            job = cycle.state.jobs[entry[1]]
            reserved = reservations.by_job.get(job.id)
            if reserved is not None and reserved.starts_at > self._now:
                self.job = job
                self.leave_out_longer()
            elif reserved is None and job.id not in reservations.refused and not self._is_too_long(job):
                self.job, self.position = job, cycle.position(entry)
                return job
        return None

    def _is_too_long(self, job: Job) -> bool:
        return self._too_long_s is not None and self._cycle.runtime(job) >= self._too_long_s

    def leave_out_longer(self) -> None:
        """Leave out all jobs of the lane that run at least as long as the present job. The present job does
        not fit now.
        """
        if self._same:
            runtime = self._cycle.runtime(self.job)
            self._too_long_s = runtime if self._too_long_s is None else min(runtime, self._too_long_s)
