"""Reserves resources for waiting jobs with a deadline, at their latest possible start."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from controller.core.backfill.easy.easy_reservation import EasyReservation
from controller.core.backfill.start_rules.start_limits import StartLimits
from controller.core.cluster.node_table import Bools
from controller.core.model.events.queued import DeadlineAtRisk
from controller.core.model.job import NEVER, Job
from controller.core.placement.placer import Placement, Placer, Shape
from controller.core.queue.queue import Queue
from controller.core.state.state import State

GUARDED_MOST = 16
"""Resources are reserved for at most this many waiting jobs with a deadline: the jobs whose latest starts
come first.
"""
MARGIN_S = 10.0
"""A job becomes urgent this many seconds before its latest start, because a start takes some time."""


class DeadlineGuard:
    """Keeps other jobs off the resources that jobs with a deadline need at their latest start.

    1. Take the GUARDED_MOST waiting jobs with the earliest latest starts. Skip jobs that a quota or another
       limit keeps from starting.
    2. Reserve resources for each of these jobs at its latest start. All running jobs are assumed to end at
       their time limits (without a limit: at their planned ends), and no other job is assumed to start. A job
       that does not fit under these assumptions will probably miss its deadline (`warnings`).
    3. Another job may not use the reserved resources if it would still run at the reserved start, and if its
       own latest start is later. A job without a deadline has no latest start and counts as later.

    The latest start of a job is its deadline minus its time limit; without a time limit, it is the deadline.
    The reservations are made once in each scheduling cycle, on first use. When the cycle starts a job, `take`
    updates the reservations. Cost: that of GUARDED_MOST EASY reservations, and nothing while no waiting job
    has a deadline.

    Example: job 7 must start by 12:00 and needs a whole node, which is free now. A job of at most one hour,
    including its grace time, may start on this node until 11:00. A job for which no end is assumed may not
    start on this node.
    """

    def __init__(self, state: State, placer: Placer, limits: StartLimits, queue: Queue) -> None:
        self._state = state
        self._queue = queue
        self._limits = limits
        self._placer = placer
        self.reserved: list[EasyReservation] | None = None
        """The deadline reservations, sorted by latest start. None until the cycle needs the reservations for
        the first time.
        """
        self._doubted: dict[int, bool] = {}
        """For each job with a deadline that this cycle has examined, by job id: True if it will probably miss
        its deadline.
        """

    def urgent(self, now: float) -> list[int]:
        """Return the ids of the jobs whose latest start is at most MARGIN_S seconds away, sorted by latest
        start.
        """
        dated = self._queue.by_latest_start
        return [job for _, job in dated[: bisect_right(dated, (now + MARGIN_S, np.inf))]]

    def again_at(self, now: float) -> float:
        """Return the next time at which another waiting job becomes urgent: its latest start is MARGIN_S
        seconds away. Return NEVER if there is no such job.
        """
        dated = self._queue.by_latest_start
        at = bisect_right(dated, (now + MARGIN_S, np.inf))
        return dated[at][0] - MARGIN_S if at < len(dated) else NEVER

    def against(self, job: Job, now: float) -> list[EasyReservation]:
        """Return the deadline reservations that this job would overlap in time if the job started now. Leave
        out the reservation of the job itself. The job may then use only resources that the returned
        reservations do not need.

        A reservation that starts after the latest start of this job is left out, because this job is more
        urgent.
        """
        if not self._queue.by_latest_start:
            return []
        latest, span = (job.latest_start, job.id), self._state.assumed_span(job)
        return [
            each
            for each in self._reservations(now)
            if now + span > each.starts_at and latest > (each.starts_at, each.job) and each.job in self._queue
        ]

    def kept_from(self, job: Job, shape: Shape, barred: Bools | None, now: float) -> Bools | None:
        """Return which nodes (True by row number) the job may not use. Return None if the job may use all
        nodes.

        The job may not use the nodes in `barred`. The job also may not take resources of a node that a
        deadline reservation of another job needs. If the job needs licences that such a reservation needs, it
        may use no node.
        """
        for reserved in self.against(job, now):
            barred = reserved.kept_from(shape.part, barred)
            if not reserved.lends(job.ask.licences):
                return np.ones(self._state.nodes.columns.height, dtype=np.bool_)
            if reserved.spare >= shape.nodes:
                continue
            blocked = reserved.blocked_by(self._placer, shape.part, self._placer.ranking(shape.part).rows)
            if blocked:
                height = self._state.nodes.columns.height
                barred = np.zeros(height, dtype=np.bool_) if barred is None else barred.copy()
                barred[[*blocked]] = True
        return barred

    def take(self, job: Job, shape: Shape, place: Placement, now: float) -> None:
        """Record that a job is about to start: reduce what the deadline reservations can spare for further
        jobs.

        Call this before the JobPlaced event is applied to the state.
        """
        if self.reserved is None:
            return
        for reserved in self.against(job, now):
            reserved.take(self._placer, shape.part, place)
            reserved.take_licences(job.ask.licences)

    def warnings(self, now: float) -> Iterator[DeadlineAtRisk]:
        """Yield an event for each waiting job that will now probably miss its deadline and could meet it
        before, or that can now meet its deadline and could not before.
        """
        if self._queue.by_latest_start:
            self._reservations(now)
            for number, doubted in self._doubted.items():
                job = self._state.jobs[number]
                if job.ready and job.wait.doubted != doubted:
                    yield DeadlineAtRisk(number, now, doubted)

    def _reservations(self, now: float) -> list[EasyReservation]:
        if self.reserved is None:
            self.reserved = []
            self._doubted = {}
            for latest, number in self._queue.by_latest_start[:GUARDED_MOST]:
                job = self._state.jobs[number]
                if self._limits.over(job, now) is not None:
                    continue  # Skip a job that a limit keeps from starting, even if it fits.
                reserved = deadline_reservation(self._state, self._placer, job, max(latest, now))
                self._doubted[number] = reserved is None
                if reserved is not None:
                    self.reserved.append(reserved)
        return self.reserved


def deadline_reservation(state: State, placer: Placer, job: Job, at: float) -> EasyReservation | None:
    """Return a reservation of the resources that the job needs when it starts at the time `at`. Return None
    if the job does not fit at that time.

    Running jobs are assumed to end at their time limits (without a limit: at their planned ends). No other
    job is assumed to start before `at`.
    """
    shape = placer.shape(job.ask)
    if shape is None:
        return None
    reserved = EasyReservation(state, placer, shape, job.id)
    return reserved if reserved.start_at(at) else None
