"""Simulates EASY backfill of ended jobs on a pool of equal units, such as GPUs."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from itertools import islice
from typing import Any, NamedTuple

DEPTH = 256
"""One simulated cycle tries at most this many waiting jobs for backfill."""
SHORTEST_RUN_S = 10.0
"""In the bounded slowdown, (wait + run time) / run time, a shorter run time counts as this many seconds."""


class PoolJob(NamedTuple):
    """An ended job: `number` identifies the job, and `size` is the number of units that the job held. Times
    are in seconds.
    """

    number: int
    submit_s: float
    run_s: float
    size: float
    limit_s: float
    assumed_s: float
    """The run time that backfill assumes for the job: its prediction or its time limit."""


class PoolBackfill:
    """A pool of `units` on which jobs start by EASY backfill, in simulated time.

    Algorithm of a cycle
    1. Start jobs in the order of `add` until one does not fit.
    2. Reserve units for this job, at the first time at which enough running jobs have reached their time
       limits.
    3. Start a later job if `assumed_s` of the job ends before this time, or if the job uses only units that
       the reservation does not need. With `shortest_first`, jobs are tried in the order of `assumed_s`.

    Cost: O(running jobs + DEPTH) for each cycle. A cycle follows each submit and each time at which jobs end.

    Example: a job with a limit until 10:00 holds 6 of 8 units. A job of 8 units waits, with a reservation at
    10:00. At 09:10 a job of 2 units is submitted. It starts if its assumed run time is at most 50 minutes.
    """

    def __init__(self, *, shortest_first: bool) -> None:
        self.units = 0.0
        self.now = 0.0
        self.slowdowns: dict[int, float] = {}
        """The bounded slowdown of each started job, by number. The caller removes the entries that it has
        read.
        """
        self._shortest_first = shortest_first
        self._free = 0.0
        self._waiting: dict[int, PoolJob] = {}
        self._by_run_time: list[tuple[float, PoolJob]] = []
        self._limit_ends: list[tuple[float, PoolJob]] = []
        """The running jobs as (time at which the job reaches its time limit, job), sorted by time."""
        self._ends: list[tuple[float, float, PoolJob]] = []
        """A heap of the running jobs: (end, time at which the time limit is reached, job)."""

    def dump(self) -> list[Any]:
        """Return the whole state of the pool as data for JSON. `load` restores it."""
        running = [[end, limit_end, *job] for end, limit_end, job in sorted(self._ends)]
        slowdowns = sorted(self.slowdowns.items())
        return [self.units, self.now, self._free, slowdowns, [*self._waiting.values()], running]

    def load(self, stored: list[Any]) -> None:
        """Restore the state from the result of `dump`."""
        self.units, self.now, self._free, slowdowns, waiting, running = stored
        self.slowdowns = dict(slowdowns)
        self._waiting = {job.number: job for job in (PoolJob(*each) for each in waiting)}
        if self._shortest_first:
            self._by_run_time = sorted((job.assumed_s, job) for job in self._waiting.values())
        self._ends = [(end, limit_end, PoolJob(*job)) for end, limit_end, *job in running]
        self._limit_ends = sorted((limit_end, job) for _, limit_end, job in self._ends)

    def resize(self, units: float) -> None:
        """Change the number of units. Running jobs continue."""
        self._free += units - self.units
        self.units = units

    def add(self, job: PoolJob) -> None:
        """Submit the job at the time `submit_s`. Before that, simulate everything that happens until this
        time. `submit_s` must not be earlier than that of the last added job.
        """
        while self._ends and self._ends[0][0] <= job.submit_s:
            self.now = self._ends[0][0]
            while self._ends and self._ends[0][0] == self.now:
                _, limit_end, ended = heapq.heappop(self._ends)
                del self._limit_ends[bisect_left(self._limit_ends, (limit_end, ended))]
                self._free += ended.size
            self._cycle()
        self.now = job.submit_s
        self._waiting[job.number] = job
        if self._shortest_first:
            insort(self._by_run_time, (job.assumed_s, job))
        self._cycle()

    def _cycle(self) -> None:
        # Start jobs in order (step 1).
        while self._waiting:
            head = next(iter(self._waiting.values()))
            if head.size > self._free and self._ends:
                break
            # If no other job runs, start the first job even if it is larger than the pool.
            self._start(head)
        if len(self._waiting) < 2 or self._free <= 0:
            return
        starts_at, spare = self._reserve(head)
        # Backfill (step 3).
        order = (job for _, job in self._by_run_time) if self._shortest_first else self._waiting.values()
        for job in list(islice((job for job in order if job is not head), DEPTH)):
            if job.size > self._free:
                continue
            if self.now + job.assumed_s > starts_at:
                if job.size > spare:
                    continue
                spare -= job.size
            self._start(job)
            if self._free <= 0:
                return

    def _reserve(self, head: PoolJob) -> tuple[float, float]:
        """Return the reserved start of the first waiting job, and the number of units that backfilled jobs
        may still hold at this start (step 2).
        """
        units, starts_at = self._free, self.now
        for limit_end, job in self._limit_ends:
            if units >= head.size and limit_end > starts_at:
                break
            units += job.size
            starts_at = max(starts_at, limit_end)
        return starts_at, units - head.size

    def _start(self, job: PoolJob) -> None:
        self._free -= job.size
        limit_end = self.now + job.limit_s
        insort(self._limit_ends, (limit_end, job))
        heapq.heappush(self._ends, (self.now + job.run_s, limit_end, job))
        del self._waiting[job.number]
        if self._shortest_first:
            del self._by_run_time[bisect_left(self._by_run_time, (job.assumed_s, job))]
        flow_s = self.now - job.submit_s + job.run_s
        self.slowdowns[job.number] = max(1.0, flow_s / max(job.run_s, SHORTEST_RUN_S))
