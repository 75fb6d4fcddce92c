"""Interfaces of order plugins, and the data that an order may read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import ClassVar, Protocol, runtime_checkable

from controller.core.cluster.node_table import NodeTable
from controller.core.fairshare.share_tree import SharePath, ShareTree
from controller.core.model.job import Job
from controller.core.queue.queue import LaneGroup
from controller.core.quota.quotas import QueueRule


class OrderView:
    """The data that an order may read in addition to the job: time, usage of tenants, size of the cluster."""

    def __init__(
        self,
        now: float,
        shares: ShareTree,
        queues: Mapping[str, QueueRule],
        columns: NodeTable,
        capacity: Callable[[], float],
    ) -> None:
        self.now = now
        self.shares = shares
        self._queues = queues
        self._columns = columns
        self._capacity = capacity

    def path(self, job: Job) -> SharePath:
        """The path of the job's tenant in the share tree."""
        return self.shares.path(job.spec.project, job.user)

    def queue(self, job: Job) -> float:
        """The priority of the job's queue, scaled from the lowest (0) to the highest (1) of all queues."""
        lowest, highest = self._priority_range
        rule = self._queues.get(job.spec.queue)
        return ((rule.priority if rule else 0) - lowest) / (highest - lowest) if highest > lowest else 0.0

    @cached_property
    def _priority_range(self) -> tuple[int, int]:
        # The queue "default" exists even without a table in the configuration.
        found = [0, *(rule.priority for rule in self._queues.values())]
        return min(found), max(found)

    @cached_property
    def gpus(self) -> int:
        """The number of GPUs in the whole cluster."""
        return int(self._columns.gpu_count.sum())

    @cached_property
    def capacity(self) -> float:
        """The capacity of the whole cluster in billing units per hour."""
        return self._capacity()


class Order(Protocol):
    """Ranks waiting jobs: the job with the lowest rank is first, and the submit order breaks ties."""

    name: ClassVar[str]

    def rank(self, job: Job) -> tuple[float, ...]:
        """The rank of the job, which must not change while the job waits."""
        ...


@runtime_checkable
class DynamicOrder(Protocol):
    """An order in which positions change while jobs wait, with age or with the usage of tenants."""

    def group(self, job: Job, tenant: SharePath) -> LaneGroup:
        """The group of the job. Jobs of one class and group never overtake each other: rank orders them."""
        ...

    def place(self, job: Job, view: OrderView) -> tuple[float, ...]:
        """The present sort key of the job; the lowest is first. A start of any job must not lower a key."""
        ...


def weighs_queues(order: Order) -> bool:
    """True if the order itself takes the priority of queues into account."""
    return bool(getattr(order, "weighs_queues", False))
