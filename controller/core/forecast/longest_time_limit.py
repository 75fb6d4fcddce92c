"""Finds shorter time limits with which a waiting job could start now. With a shorter limit, the job would end
before other jobs need its nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from controller.core.backfill.candidates.short_starts import moments_needed
from controller.core.backfill.cycle import Cycle
from controller.core.engine import Engine
from controller.core.model.job import NEVER, Job
from controller.core.quota.limit_exceeded import LimitExceeded
from controller.core.quota.usage_counters import GPU_TIME

USABLE_S = 10.0
"""A suggested limit stays valid for this many seconds, because a user needs time to enter the limit."""
MINUTES_FROM_S = 180.0
"""A suggested limit of at least this many seconds is rounded down to whole minutes. A shorter limit is
rounded down to a multiple of STEP_S seconds.
"""
STEP_S = 5.0
MOST = 64


def time_limits_that_fit(ahead: Engine, job: Job, now: float) -> list[float]:
    """Return time limits, in seconds, with which a job that cannot start now may be able to start, because it
    would end before other jobs need its nodes. All returned limits are below the job's present limit. The
    longest limit comes first.

    Call this after a scheduling cycle at the time `now`, because the cycle makes the reservations.
    1. Collect the times at which other jobs or users need nodes. These are the reserved starts of other jobs
       in all scheduler profiles, the latest starts of jobs with deadlines, and the starts of operators'
       reservations.
    2. For each of these times, a possible limit is the seconds until then, minus the job's grace and minus
       USABLE_S.
    3. If the job would exceed a quota on GPU-hours, another possible limit is the time in which the job uses
       up the rest of the quota.
    4. Round each limit down (MINUTES_FROM_S).

    Example: another job has a reserved start in 2 h, and this job has a grace of 30 s. The suggested limit is
    1h59m.
    """
    cycle = ahead.profile_cycles.of(job)
    spans = {moment - now - job.spec.grace_s for moment in _moments(ahead, cycle, job, now)}
    spans |= set(_within_quota(cycle, job, now))
    limits = {_written(span - USABLE_S) for span in spans if span < NEVER}
    return sorted((each for each in limits if 0 < each < job.limit), reverse=True)[:MOST]


def _moments(ahead: Engine, cycle: Cycle, job: Job, now: float) -> Iterator[float]:
    yield from (moment for moment, _ in moments_needed(cycle, job, now))
    for other in ahead.profile_cycles.cycles.values():
        yield from (each.starts_at for number, each in other.reservations.by_job.items() if number != job.id)


def _within_quota(cycle: Cycle, job: Job, now: float) -> Iterator[float]:
    over = cycle.limits.over(job, now)
    if isinstance(over, LimitExceeded) and over.kind == GPU_TIME and over.asked:
        length = min(job.limit, cycle.state.accounts.window_s)
        yield length * (over.limit - over.used) / over.asked + USABLE_S


def _written(span: float) -> float:
    step = 60.0 if span >= MINUTES_FROM_S else STEP_S
    return math.floor(span / step) * step
