"""Tries the waiting jobs of one lane (list of jobs with the same request) for backfill, one after the
other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from controller.core.backfill.easy.beside_reservation import find_beside_reservation
from controller.core.backfill.start_rules.limited_starts import shut_if_over
from controller.core.backfill.start_rules.quota_reservations import QuotaReserved
from controller.core.model.job import Job
from controller.core.placement.placer import Placement
from controller.core.queue.queue import Lane, QueueEntry

if TYPE_CHECKING:
    from controller.core.backfill.cycle import Cycle


class BackfillCandidates:
    """Goes through the waiting jobs of one lane. All jobs of a lane have the same resource request.

    1. `advance` goes to the next job of the lane. It skips the whole lane if the request fits on too few
       nodes.
    2. `take_placement` looks for nodes. If the job ends before the reserved start of the first waiting job,
       try all nodes. If the job ends later, try only the nodes that the first waiting job does not need.
    3. Suppose a job still runs at the reserved start and finds no nodes. Then skip the other jobs of the lane
       that would still run at that time. All jobs of the lane have the same request, so the skipped jobs
       would find no nodes either.

    Example: the reserved start of the first waiting job is in 1 h. The lane has jobs of 1 GPU with limits of
    3 h, 2 h and 30 min. The first job of the lane finds no GPU that the first waiting job can spare. The
    second job is skipped, and the third job starts.
    """

    __slots__ = (
        "_cycle",
        "_entries",
        "_entry",
        "_gains",
        "_lane",
        "_long_fail",
        "_now",
        "_outlasts",
        "_rationed",
        "_seen_to_fit",
        "_shape",
        "_too_long_s",
    )

    def __init__(
        self, cycle: Cycle, lane: Lane, entries: Iterable[QueueEntry], now: float, seen_to_fit: int = -1
    ) -> None:
        self._cycle = cycle
        self._lane = lane
        self._now = now
        self._gains = cycle.state.nodes.room_version
        self._shape = cycle.placer.shape(lane.ask)
        self._entry: QueueEntry = ((), 0)
        self._seen_to_fit = seen_to_fit
        """The value of `Nodes.change_count` when a job of the lane last fitted on enough nodes."""
        self._outlasts = False
        """True if the current job may still run at the reserved start of the first waiting job."""
        self._long_fail = False
        """True if the search has failed for a job of this lane that would still run at the reserved start of
        the first waiting job.
        """
        self._too_long_s: float | None = None
        """A run time in seconds. A job of the lane that runs this long or longer would delay a reservation on
        shared nodes, or a reservation of quota. None: no such run time is known yet.
        """
        rationed = cycle.queue.rationed
        head = lane.head() if rationed else None
        self._rationed = head is not None and cycle.state.tenant(cycle.state.jobs[head[1]]) in rationed
        """True if the jobs of the lane are tried after all other jobs, because their user has used more than
        its part of the project (candidates/rationing.py).
        """
        if not cycle.in_queue_order:
            key, jobs, hold_s = cycle.backfill.candidate_key, cycle.state.jobs, _hold_s_at(cycle, now)
            entries = sorted(entries, key=lambda entry: (key(hold_s(jobs[entry[1]])), entry))
        self._entries: Iterator[QueueEntry] = iter(entries)

    @property
    def job(self) -> int:
        """The id of the current job."""
        return self._entry[1]

    def _runtime(self, entry: QueueEntry) -> float:
        return _hold_s_at(self._cycle, self._now)(self._cycle.state.jobs[entry[1]])

    def advance(self) -> tuple[float, QueueEntry] | None:
        """Make the next job of this lane (list of jobs with one request) the current job. Skip the first
        waiting job of the cycle, and jobs for which an earlier search has shown that they cannot start now.
        Return the sort key of the new current job, or None if no job is left.
        """
        if self._block_if_full():
            return None
        cycle, jobs = self._cycle, self._cycle.state.jobs
        ends_by, hold_s = None, _hold_s_at(cycle, self._now)
        first = 0 if cycle.head is None else cycle.head[1]
        for entry in self._entries:
            if entry[1] == first:
                continue
            if ends_by is None:
                ends_by = cycle.easy.use(self._now)
            runtime = hold_s(jobs[entry[1]])
            if self._too_long_s is not None and runtime >= self._too_long_s:
                continue
            # Add the run time to the present time, as the computation of `ends_by` does. Subtracting times
            # instead would round differently.
            self._outlasts = self._now + runtime > ends_by
            if not (self._outlasts and self._long_fail):
                self._entry = entry
                return self.key()
        return None

    def _block_if_full(self) -> bool:
        """Return True if the request of the lane (list of jobs with one request) fits on too few nodes now.
        In this case, also block the lane, so that cycles skip its jobs until resources become free.
        """
        if self._lane.fit.blocked_at == self._gains or self._shape is None:
            return True
        cycle, shape, nodes = self._cycle, self._shape, self._cycle.state.nodes
        if self._seen_to_fit == nodes.change_count:
            return False
        self._seen_to_fit = nodes.change_count
        if not nodes.may_hold(shape.part) or cycle.placer.max_nodes(shape.part) < shape.nodes:
            self._lane.fit.block(self._gains)
            return True
        return False

    def key(self) -> tuple[float, QueueEntry]:
        """Return the sort key of the current job among all candidates. The candidate with the lowest key is
        tried first.

        The key is a pair. The second value is the job's queue position, which decides between equal first
        values. The first value is a number that the backfill plugin computes from the job's run time. If the
        plugin keeps the queue order, the first value is False, or True for a job that is tried last
        (`_rationed`).
        """
        cycle, position = self._cycle, self._cycle.position(self._entry)
        if cycle.in_queue_order:
            return self._rationed, position
        return cycle.backfill.candidate_key(self._runtime(self._entry)), position

    def take_placement(self) -> Placement | None:
        """Return a placement with which the current job can start now. Return None if the job fits on none of
        the nodes that the job may use, or if the job is over a quota or fair-share limit.

        If the job would still run at the reserved start of the first waiting job, record this in the EASY
        reservation, which then leaves less to later candidates.
        """
        cycle, shape, number = self._cycle, self._shape, self._entry[1]
        if cycle.state.limited and self._shut_if_over():
            return None
        easy = cycle.easy.reservation(self._now)
        wanted = self._lane.ask.licences
        if easy is None or not self._outlasts or cycle.state.licences.insufficient(wanted):
            placement = cycle.find_or_block(
                self._lane, number, self._now, for_deadlines=cycle.guards_deadlines
            )
            if placement is None and self._reserved_everywhere(number):
                self._too_long_s = self._runtime(self._entry)
            return placement
        if shape is None or not easy.lends(wanted):
            self._long_fail = True
            return None
        barred = cycle.search.barred(cycle.state.jobs[number], self._now, for_deadlines=True)
        placement = find_beside_reservation(cycle.placer, shape, easy, barred)
        if placement is not None:
            easy.take(cycle.placer, shape.part, placement)
            easy.take_licences(wanted)
            return placement
        # Skip the other long jobs of the lane only if no node is barred for this job. An operator's
        # reservation, for example, bars nodes, but may admit the users of the other jobs.
        self._long_fail = barred is None
        if barred is not None and cycle.placer.fits(self._lane.ask):
            cycle.keep_out(number, self._now)
        return None

    def _reserved_everywhere(self, number: int) -> bool:
        """Return whether backfill reservations of other jobs alone leave no nodes to a job that found no
        placement. Then the jobs of the lane that run longer find no nodes either.

        Return False if deadlines, operators' reservations or quotas of GPU models may be the cause, because
        they can treat the jobs of a lane differently.
        """
        cycle = self._cycle
        shared, job = cycle.search.shared, cycle.state.jobs[number]
        if shared is None:
            return False
        if cycle.search.barred(job, self._now, for_deadlines=cycle.guards_deadlines) is None:
            return True  # The search has just failed although no node is barred.
        return shared.find(job, None, self._now) is None

    def _shut_if_over(self) -> bool:
        """Return whether the current job may not start, either because of a limit or because the quota is
        reserved for another job.

        If the current job is over a limit, also skip the other jobs with the same request, unless the limit
        concerns only this job. If the job would use reserved quota, also skip the jobs with the same request
        that run at least as long.
        """
        over = shut_if_over(self._cycle, self._lane, self._entry[1], self._now)
        if isinstance(over, QuotaReserved):
            self._too_long_s = self._runtime(self._entry)
        elif over is not None and not over.only_this_job:
            self._entries = iter(())
        return over is not None


def _hold_s_at(cycle: Cycle, now: float) -> Callable[[Job], float]:
    """Return a function that returns, for a job that would start now, how many seconds it would keep its
    resources from other jobs.
    """
    scavengers = cycle.scavengers
    if scavengers is None:
        return cycle.runtime
    return lambda job: scavengers.hold_s(job, now, cycle.runtime(job))
