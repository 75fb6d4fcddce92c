"""Starts waiting jobs with a shorter time limit than `--time`, if they have `--time-min`."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING

from controller.core.backfill.easy.beside_reservation import find_beside_reservation
from controller.core.backfill.start_rules.limited_starts import start_limit
from controller.core.framework.interfaces import Reserves
from controller.core.model.job import NEVER, Job
from controller.core.model.time_limits import ShortLimit
from controller.core.placement.placer import Placement
from wire.text import printable

if TYPE_CHECKING:
    from controller.core.backfill.cycle import Cycle
    from controller.core.backfill.cycle_events import Apply

MOST_JOBS = 64
"""The most jobs that one cycle tries to start with a shorter time limit."""
MOST_LIMITS = 16
"""The most time limits that are tried for one job in one cycle."""
STEP_S = 1.0
"""Shorter time limits are multiples of this number of seconds."""


def start_short_jobs(cycle: Cycle, now: float, apply: Apply) -> None:
    """Start waiting jobs that can start now only with a shorter time limit, in queue order.

    Before this, the cycle has tried all jobs with their own time limits. Steps for each job that still waits
    and has a least time limit:
    1. Collect the times at which nodes are needed for the reserved start of another job, for an operator's
       reservation or for a drain (`moments_needed`). A job that ends before such a time delays nothing that
       begins then.
    2. For each time, the latest first, compute the limit with which the job and its grace end at this time.
       Skip limits below the least time limit.
    3. Start the job with the first of these limits for which nodes are free and no quota or fair-share limit
       is exceeded.

    Invariant: a short start obeys the same rules as the other steps of the cycle. The rules are applied to a
    copy of the job with the shorter limit, so no backfill reservation is delayed. Cost: at most MOST_JOBS *
    MOST_LIMITS searches for nodes.

    Example: job 7 requests 8 h and accepts 1 h. The first waiting job needs all nodes in 3 h. With a grace of
    10 s, job 7 starts with a limit of 2 h 59 min 50 s.
    """
    state = cycle.state
    if cycle.backfill.reserves is Reserves.ALL_JOBS and (
        cycle.reservations.refused or (state.releases and state.releases[0][0] <= now)
    ):
        # Start no job with a shortened limit in two cases. In the first case, a job could not start at its
        # reserved time. This job has no reservation now, so nothing protects the nodes that it needs. In the
        # second case, a running job is past its expected end, so the reserved starts after it are unreliable.
        return
    state.shortenable = {number for number in state.shortenable if number in state.queue}
    mine = (cycle.queue.entry(number) for number in state.shortenable if number in cycle.queue)
    first = heapq.nsmallest(MOST_JOBS, mine, key=cycle.position)
    for _, number in first:
        job, lane = state.jobs[number], cycle.queue.lane(number)
        if lane is None or lane.fit.blocked_at == state.nodes.room_version:
            continue
        found = next(_short_starts(cycle, job, now), None)
        if found is not None:
            cycle.reservations.forget(number)
            placement, short = found
            cycle.start(number, placement, now, apply, short)


def with_short_limit(job: Job, short: ShortLimit) -> Job:
    """Return a copy of the waiting job that has the shorter time limit."""
    shorter = copy(job)
    shorter.short = short
    return shorter


def _short_starts(cycle: Cycle, job: Job, now: float) -> Iterator[tuple[Placement, ShortLimit]]:
    least = job.spec.time_min_s or NEVER
    limits: dict[float, str] = {}
    for moment, why in moments_needed(cycle, job, now):
        limit = math.floor((moment - now - job.spec.grace_s) / STEP_S) * STEP_S
        if least <= limit < job.limit:
            limits.setdefault(limit, why)
    for limit in heapq.nlargest(MOST_LIMITS, limits):
        short = ShortLimit(limit, limits[limit])
        placement = _find(cycle, with_short_limit(job, short), now)
        if placement is not None:
            yield placement, short


def _find(cycle: Cycle, job: Job, now: float) -> Placement | None:
    """Return a placement with which this copy of a job can start now; None if there is none."""
    state = cycle.state
    if state.licences.insufficient(job.ask.licences):
        return None
    if start_limit(cycle, job, now) is not None:
        return None
    barred = cycle.search.barred(job, now, for_deadlines=True)
    if cycle.shared is not None or cycle.backfill.reserves is Reserves.ALL_JOBS:
        return cycle.reservations.find_now(job, barred, now)
    easy, shape = cycle.easy.reservation(now), cycle.placer.shape(job.ask)
    if easy is None or easy.job == job.id or now + cycle.runtime(job) <= cycle.easy.use(now):
        return cycle.placer.find(job.ask, barred)
    if shape is None or not easy.lends(job.ask.licences):
        return None
    placement = find_beside_reservation(cycle.placer, shape, easy, barred)
    if placement is not None:
        easy.take(cycle.placer, shape.part, placement)
        easy.take_licences(job.ask.licences)
    return placement


def moments_needed(cycle: Cycle, job: Job, now: float) -> Iterator[tuple[float, str]]:
    """Yield (time, cause) for each time at which nodes that the job might use must be free again. The causes
    are reserved starts of other jobs, operators' reservations, drains, and the latest starts of jobs with
    deadlines.
    """
    state = cycle.state
    shadow = cycle.easy.reservation(now)
    if shadow is not None and shadow.job != job.id:
        yield (
            cycle.easy.backfill_ends_by(shadow),
            f"job {state.jobs[shadow.job].label} is to start then",
        )
    for number, each in cycle.reservations.by_job.items():
        if number != job.id:
            yield each.starts_at, f"job {state.jobs[number].label} is to start then"
    for reservation in state.reservations.excluding(job.user, job.spec.project):
        every, start = reservation.spec.every_s, reservation.starts_at
        if reservation.began and every is not None:
            start += every
        yield start, f"{printable(reservation.title)} begins then"
    if cycle.guards_deadlines:
        for guarded in cycle.deadline_guard.against(job, now):
            yield guarded.starts_at, f"job {state.jobs[guarded.job].label} needs its nodes for its deadline"
