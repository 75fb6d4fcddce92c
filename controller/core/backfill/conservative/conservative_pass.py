"""The scheduling cycle of one scheduler profile with conservative backfill: starts the jobs whose reserved
start has come.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from controller.core.backfill.conservative.beyond_depth import StartsBeyondDepth
from controller.core.backfill.conservative.queue_walk import jobs_within_limits
from controller.core.backfill.preemptor_starts import plan_preemption
from controller.core.backfill.start_rules.limited_starts import shut_if_over
from controller.core.backfill.tried_jobs import versions
from controller.core.queue.queue import Lane
from controller.core.state.barred_nodes import barred_nodes, nodes_at_model_quota

if TYPE_CHECKING:
    from controller.core.backfill.cycle import Cycle
    from controller.core.backfill.cycle_events import Apply


class ConservativePass:
    """Runs the cycles of a scheduler profile with conservative backfill, in which every waiting job has a
    backfill reservation.

    1. Go through the waiting jobs in queue order, and plan a preemption for each. Stop at the first job that
       fits on free nodes, or for which no victims (jobs to preempt) are found.
    2. Bring the reservations of the waiting jobs up to date, in queue order.
    3. Start the jobs whose reserved start has come. If quotas, licences or nodes do not allow the start, drop
       the reservation of the job (`refuse`).
    4. If more jobs wait than may have reservations, start later jobs that delay no reservation
       (beyond_depth.py).
    5. Repeat steps 2 to 4 until a round changes nothing. Reason: a started job can satisfy an affinity term
       of a waiting job, and a job that may not start leaves its resources to other jobs.
    """

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._state = cycle.state
        self._beyond = StartsBeyondDepth(cycle)
        self._seen: tuple[int, ...] = ()
        """The result of `versions` (tried_jobs.py) when refused jobs were last tried again."""

    def run(self, now: float, apply: Apply, *, due: bool) -> None:
        """Run one cycle. `due` is True if jobs may start although no resources became free, because time has
        passed or because a job has run longer than predicted.
        """
        self._preempt_for_first(now, apply)
        reservations, seen = self._cycle.reservations, versions(self._cycle)
        if due or self._seen != seen:
            self._seen = seen
            reservations.retry_refused()
        before: tuple[int, ...] = ()
        while before != (round_ := self._round()):
            before = round_
            self._start_reserved(now, apply)

    def _round(self) -> tuple[int, ...]:
        """Return the version of the affinity index, the number of refused jobs and the number of waiting
        jobs. If one of them differs after a round, another round may start more jobs.
        """
        state, reservations = self._state, self._cycle.reservations
        # Count the waiting jobs only if there are quotas of GPU models. A started job may then have used up a
        # quota, so that other jobs need reservations on other nodes.
        waiting = len(self._cycle.queue) if state.quotas.models else 0
        return state.nodes.job_affinity.version, len(reservations.refused), waiting

    def _preempt_for_first(self, now: float, apply: Apply) -> None:
        """Plan a preemption for each waiting job in queue order. Stop at the first job that fits on free
        nodes, or for which no victims (jobs to preempt) are found.
        """
        cycle = self._cycle
        while len(cycle.queue):
            heads = [head for lane in self._lanes_within_limits(now) if (head := lane.head()) is not None]
            if not heads:
                return
            job = self._state.jobs[min(heads, key=cycle.position)[1]]
            if cycle.search.find(job, now) is not None:
                return
            if cycle.find_fewer(job, now) is not None:
                return
            plan = plan_preemption(cycle, job, now)
            if plan is None:
                return
            apply(plan)

    def _start_reserved(self, now: float, apply: Apply) -> None:
        """Bring the backfill reservations up to date, and start jobs whose reserved start has come."""
        cycle, reservations = self._cycle, self._cycle.reservations
        lanes, depth = list(self._lanes_within_limits(now, fewer_nodes=True)), cycle.backfill.depth
        first = list(islice(jobs_within_limits(cycle, lanes, now), depth))
        reservations.update(first, now)
        cycle.partial_start_at = min(cycle.partial_start_at, reservations.next_partial_start(now))
        for number in reservations.due_jobs(now):
            self._start_due(number, now, apply)
        if depth is not None and len(first) == depth:
            self._beyond.run(lanes, now, lambda number: self._start_due(number, now, apply))

    def _start_due(self, number: int, now: float, apply: Apply) -> None:
        """Start a job whose reserved start has come. If it may not start, drop its backfill reservation."""
        cycle, state, reservations = self._cycle, self._state, self._cycle.reservations
        placement = reservations.take_due(number)
        job = state.jobs[number]
        over = cycle.limits.over(job, now, len(placement.allocations))
        allowed = over is None and not state.licences.insufficient(job.ask.licences)
        if allowed and cycle.placer.still_fits(job.ask, placement, barred_nodes(state, job, now)):
            cycle.start(number, placement, now, apply)
            return
        full = nodes_at_model_quota(state, job)
        reservations.refuse(number, now)
        if full is not None and any(
            full[state.nodes.by_name[each.node].row] for each in placement.allocations
        ):
            # Let the job get a reservation again in the next round, because it may start on another GPU
            # model: a job that started in this round has used up the quota of this GPU model.
            reservations.refused.discard(number)

    def _lanes_within_limits(self, now: float, *, fewer_nodes: bool = False) -> Iterable[Lane]:
        """Return the lanes (lists of waiting jobs with the same request) whose first job no limit, such as a
        quota, keeps from starting.

        For each lane whose first job is over a limit, record this limit as the pending reason of the lane's
        jobs. With `fewer_nodes`, also return such a lane in two cases: the limits allow its first job to
        start on fewer nodes, or other jobs of the lane may be within the limit.
        """
        cycle = self._cycle
        if not self._state.limited:
            return cycle.queue
        found = []
        for lane in cycle.queue:
            head = lane.head()
            if head is None:
                continue
            over = shut_if_over(cycle, lane, head[1], now)
            if not over or (
                fewer_nodes
                and (over.only_this_job or cycle.limits.nodes_within(self._state.jobs[head[1]], now))
            ):
                found.append(lane)
        return found
