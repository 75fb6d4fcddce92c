"""Starts jobs with a deadline before other jobs, with `deadlines = "lift"`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.core.backfill.start_rules.limited_starts import shut_if_over
from controller.core.state.barred_nodes import barred_nodes

if TYPE_CHECKING:
    from controller.core.backfill.cycle import Cycle
    from controller.core.backfill.cycle_events import Apply


def start_urgent_jobs(cycle: Cycle, now: float, apply: Apply) -> None:
    """Start the waiting jobs that must start now to meet their deadlines. Call this before any other job is
    started in the cycle.
    """
    for number in cycle.deadline_guard.urgent(now):
        lane = cycle.queue.lane(number)
        if lane is None or shut_if_over(cycle, lane, number, now) is not None:
            continue
        placement = cycle.find_or_block(lane, number, now, for_deadlines=True)
        if placement is not None:
            cycle.start(number, placement, now, apply)


def job_to_try_first(cycle: Cycle, number: int, now: float) -> int:
    """Return the id of the job to try now: `number`, or the id of a job with a deadline.

    If a start of job `number` would take the last nodes that another waiting job needs to meet its deadline,
    return the other job.
    """
    state, placer, guard = cycle.state, cycle.placer, cycle.deadline_guard
    while True:
        job = state.jobs[number]
        shape, barred = placer.shape(job.ask), barred_nodes(state, job, now)
        broken = guard.against(job, now) if shape is not None else []
        if not broken or shape is None or placer.find(job.ask, barred) is None:
            return number
        if placer.find(job.ask, guard.kept_from(job, shape, barred, now)) is not None:
            return number
        number = broken[0].job
