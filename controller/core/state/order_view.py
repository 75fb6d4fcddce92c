"""Computes the present queue positions of jobs, for order plugins whose positions change with time and
usage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.core.queue.order import OrderView
from controller.core.queue.queue import PositionKey, Queue, QueueEntry
from wire.api.reasons import Points

if TYPE_CHECKING:
    from controller.core.model.job import Job
    from controller.core.state.state import State


def _order_view(state: State, now: float) -> OrderView:
    nodes, rules = state.nodes, state.quotas.rules
    return OrderView(now, state.shares, rules.queues, nodes.columns, lambda: state.capacity)


def priority_points(state: State, job: Job, now: float) -> tuple[Points, ...]:
    """Return the points that each priority factor gives the job; empty if the order plugin of the job's
    profile does not use points.
    """
    receipt = getattr(state.queue_of(job).order, "receipt", None)
    if receipt is None:
        return ()
    found: tuple[Points, ...] = receipt(job, _order_view(state, now))
    return found


def position_key(state: State, queue: Queue, now: float) -> PositionKey | None:
    """Return a function that computes the present sort key of an entry of the queue. Return None if sort keys
    do not change with time, so that the queue is already sorted.
    """
    moving, jobs, quotas = queue.moving, state.jobs, state.quotas
    if moving is None and not quotas.has_soft_limits:
        return None
    view = _order_view(state, now)

    def place(entry: QueueEntry) -> QueueEntry:
        rank, number = entry
        job = jobs[number]
        before = (
            state.queue_tier(job) if moving is None else (*state.queue_tier(job), *moving.place(job, view))
        )
        if quotas.has_soft_limits:
            before = (float(state.over_soft_quota(job, now) is not None), *before)
        return (*before, *rank), number

    return place
