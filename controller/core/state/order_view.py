"""Computes the sort keys of waiting jobs. These keys are needed for order plugins under which positions in
the queue change with time and usage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.core.cluster.gpus.gpu_requirements import gpu_needs_of, milli_of_models
from controller.core.queue.order import OrderView
from controller.core.queue.queue import PositionKey, Queue, QueueEntry
from controller.core.quota.limit_exceeded import LimitExceeded
from wire.api.reasons import Points

if TYPE_CHECKING:
    from controller.core.model.job import Job
    from controller.core.state.state import State


ABOVE_SHARE = 3
"""A gang must wait this many times as long before it comes first if its project has used more than its fair
share.
"""


def _order_view(state: State, queue: Queue, now: float) -> OrderView:
    nodes, rules = state.nodes, state.quotas.rules
    return OrderView(
        *(now, state.shares, rules.queues, nodes.columns, lambda: state.capacity, queue.rationed),
        state.service_rates,
    )


def priority_points(state: State, job: Job, now: float) -> tuple[Points, ...]:
    """Return the points of each priority factor of the job, for `corral explain`; empty if the order plugin
    of its scheduler profile does not use points.
    """
    queue = state.queue_of(job)
    receipt = getattr(queue.order, "receipt", None)
    if receipt is None:
        return ()
    found: tuple[Points, ...] = receipt(job, _order_view(state, queue, now))
    return found


def position_key(state: State, queue: Queue, now: float) -> PositionKey | None:
    """Return a function that computes the sort key of a queue entry at the time `now`. Return None if sort
    keys do not change with time. The fixed rank of the entries then decides alone.
    """
    moving, jobs, quotas = queue.moving, state.jobs, state.quotas
    overdue = overdue_gangs(state, queue, now)
    if moving is None and not state.orders_by_limits and not overdue:
        return None
    view = _order_view(state, queue, now)

    def place(entry: QueueEntry) -> QueueEntry:
        rank, number = entry
        job = jobs[number]
        before = (
            state.queue_tier(job) if moving is None else (*state.queue_tier(job), *moving.place(job, view))
        )
        if quotas.has_soft_limits:
            before = (float(over_soft_quota(state, job, now) is not None), *before)
        if state.budgets.lowers:
            before = (float(state.budgets.comes_last(job.spec.project, now)), *before)
        if overdue:
            before = (float(number not in overdue), *before)
        return (*before, *rank), number

    return place


def overdue_gangs(state: State, queue: Queue, now: float) -> frozenset[int]:
    """Return the jobs on several nodes that have waited longer than `[scheduler] gang_after_s`. A job must
    have waited three times as long if its project has used more than its share. A job that was preempted is
    in the result at once, whatever its wait.

    In the default order of several projects (`State.orders_projects`), a job of a project above its share is
    never in the result. For this rule, the project is compared only with the projects that have waiting jobs.
    Without this rule, the gangs of one project would always come before the jobs of all other projects in an
    overloaded cluster.

    The jobs in the result come before all other jobs. Backfill reserves nodes for the first of them and
    starts no further jobs on these nodes. If several jobs have equal requests (a lane), only the first job of
    the lane can be in the result.

    Example: with `gang_after_s = 86400`, a job on four nodes that has waited for 25 hours comes first. If
    several such jobs wait, the order of the queue decides which job is first.
    """
    if state.gang_after_s is None:
        return frozenset()
    widest = state.nodes.columns.gpu_free.shape[1]
    found, bound_s = [], state.gang_after_s
    for lane in queue.gang_lanes:
        if now - lane.waits_since <= bound_s:
            continue
        if (lane.ask.nodes or 0) <= 1 and lane.ask.part.gpus <= widest:
            continue
        head = lane.head()
        job = None if head is None else state.jobs[head[1]]
        if job is not None and job.preemptions:
            found.append(job.id)
        elif job is not None and now - job.ready_at > bound_s:
            among = _projects_waiting(state, queue) if state.orders_projects else None
            above = state.shares.above_share(state.tenant(job)[0], now, among)
            if not above or (among is None and now - job.ready_at > ABOVE_SHARE * bound_s):
                found.append(job.id)
    return frozenset(found)


def _projects_waiting(state: State, queue: Queue) -> frozenset[str]:
    """Return the top-level tenants (organisations, or projects without one) that have waiting jobs."""
    heads = (lane.head() for lane in queue)
    return frozenset(state.tenant(state.jobs[head[1]])[0] for head in heads if head is not None)


def over_soft_quota(state: State, job: Job, now: float) -> LimitExceeded | None:
    """Return the first soft limit that the job would exceed if it started now, or the hard limit above
    which it would borrow quota. Return None if there is neither.
    """
    part, nodes = job.ask.part, job.ask.nodes or 1
    gpu_milli = gpu_needs_of(part, state.nodes.columns).max_milli * nodes
    of_models = milli_of_models(part, state.nodes.columns, state.quotas.models, nodes)
    need = part.cpu_milli * nodes, part.memory_mib * nodes, gpu_milli, 1, 0, 0, *of_models
    return state.quotas.over_soft(job.user, job.spec, need, now, now - job.ready_at)
