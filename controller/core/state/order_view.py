"""Queue positions at one moment, for orders that change with time and usage."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from controller.core.fairshare.share_tree import SharePath
from controller.core.queue.queue import PositionKey, Queue, QueueEntry
from wire.api.reasons import Points

if TYPE_CHECKING:
    from controller.core.model.job import Job
    from controller.core.state.state import State


class ClusterOrderView:
    """What an order may look at: the time, the usage of tenants and the size of the cluster."""

    def __init__(self, state: State, now: float) -> None:
        self.shares = state.shares
        self.now = now
        self._state = state

    def path(self, job: Job) -> SharePath:
        """The path of the job's tenant in the share tree."""
        return self._state.tenant(job)

    def queue(self, job: Job) -> float:
        """The priority of the job's queue, scaled from the lowest (0) to the highest (1) of all queues."""
        lowest, highest = self._queues
        rule = self._state.quotas.rules.queues.get(job.spec.queue)
        return ((rule.priority if rule else 0) - lowest) / (highest - lowest) if highest > lowest else 0.0

    @cached_property
    def _queues(self) -> tuple[int, int]:
        # The queue "default" exists even without a table in the configuration.
        found = [0, *(rule.priority for rule in self._state.quotas.rules.queues.values())]
        return min(found), max(found)

    @cached_property
    def gpus(self) -> int:
        """GPUs of the whole cluster."""
        return int(self._state.nodes.columns.gpu_count.sum())

    @cached_property
    def capacity(self) -> float:
        """The capacity of the cluster in billing units per hour."""
        return self._state.capacity


def priority_points(state: State, job: Job, now: float) -> tuple[Points, ...]:
    """The points of each factor of the job's priority; empty if its order has no points."""
    receipt = getattr(state.queue_of(job).order, "receipt", None)
    if receipt is None:
        return ()
    found: tuple[Points, ...] = receipt(job, ClusterOrderView(state, now))
    return found


def position_key(state: State, queue: Queue, now: float) -> PositionKey | None:
    """The sort key of queue entries at this moment; None if entries themselves sort in queue order."""
    moving, jobs, quotas = queue.moving, state.jobs, state.quotas
    if moving is None and not quotas.has_soft_limits:
        return None
    view = ClusterOrderView(state, now)

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
