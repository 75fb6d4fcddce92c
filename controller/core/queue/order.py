"""Interfaces of order plugins, and what an order may look at."""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable

from controller.core.fairshare.share_tree import SharePath, ShareTree
from controller.core.model.job import Job
from controller.core.queue.queue import LaneGroup


class OrderView(Protocol):
    """The time, the usage of tenants and the size of the cluster, for orders that depend on them."""

    now: float
    shares: ShareTree

    def path(self, job: Job) -> SharePath:
        """The job's tenant in the share tree."""
        ...

    def queue(self, job: Job) -> float:
        """The priority of the job's queue, from the lowest (0) to the highest (1) of all queues."""
        ...

    @property
    def gpus(self) -> int:
        """GPUs of the whole cluster."""
        ...

    @property
    def capacity(self) -> float:
        """Billing units per hour of the whole cluster."""
        ...


class Order(Protocol):
    """Decides which job comes first: the lowest rank. The submit order breaks ties."""

    name: ClassVar[str]

    def rank(self, job: Job) -> tuple[float, ...]:
        """The job's rank; must not change while it waits."""
        ...


@runtime_checkable
class DynamicOrder(Protocol):
    """An order in which positions change while jobs wait, with age or with the usage of tenants."""

    def group(self, job: Job, tenant: SharePath) -> LaneGroup:
        """Jobs with the same class and group never overtake each other:

        they are ordered by rank, then by submit.
        """
        ...

    def place(self, job: Job, view: OrderView) -> tuple[float, ...]:
        """The sort key of the job at this moment; lower is first. A start of any job must not lower a key."""
        ...


def weighs_queues(order: Order) -> bool:
    """Does the order use the priority of queues itself?"""
    return bool(getattr(order, "weighs_queues", False))
