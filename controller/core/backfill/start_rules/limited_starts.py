"""Skips waiting jobs that a limit or a reservation of quota keeps from starting, or starts them on fewer
nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.core.backfill.start_rules.quota_reservations import QuotaReserved
from controller.core.backfill.start_rules.start_limits import StartLimit
from controller.core.model.job import Job
from controller.core.queue.queue import Lane
from controller.core.quota.limit_exceeded import LimitExceeded

if TYPE_CHECKING:
    from controller.core.backfill.cycle import Cycle
    from controller.core.backfill.cycle_events import Apply


def start_limit(cycle: Cycle, job: Job, now: float) -> StartLimit | QuotaReserved | None:
    """Return the limit that keeps the job from starting (`StartLimits.over`), or the reservation of quota
    that its start would delay (`QuotaReservations.delay_of`); None if there is neither.
    """
    if not cycle.state.limited:
        return None
    return cycle.limits.over(job, now) or cycle.quota_reservations.delay_of(job, now)


def shut_if_over(cycle: Cycle, lane: Lane, number: int, now: float) -> StartLimit | QuotaReserved | None:
    """Return the result of `start_limit`. If it is a limit, record its pending reason for the whole lane
    (list of jobs with the same request), because all jobs of the lane usually wait for the same reason.
    """
    over = start_limit(cycle, cycle.state.jobs[number], now)
    if over is not None:
        cycle.queue.lane_pending_reasons[lane] = over.reason
    return over


def start_on_fewer(
    cycle: Cycle, lane: Lane, number: int, over: StartLimit | QuotaReserved, now: float, apply: Apply
) -> bool:
    """Start the first job of a lane on fewer nodes if the job and its limits allow this. The limit `over`
    keeps the job from starting on all its nodes. Otherwise reserve the quota that the job needs. Return
    whether the cycle tries the next job of the lane.

    If the job would delay a reservation of quota (QuotaReserved), skip the lane without a start. Backfill
    later tries the shorter jobs of this lane.
    """
    if isinstance(over, QuotaReserved):
        return False
    job = cycle.state.jobs[number]
    placement = cycle.find_fewer(job, now)
    if placement is not None:
        cycle.queue.lane_pending_reasons.pop(lane, None)
        cycle.start(number, placement, now, apply)
        return True
    if isinstance(over, LimitExceeded):
        cycle.quota_reservations.reserve(job, over, now)
    return over.only_this_job
