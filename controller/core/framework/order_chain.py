"""Chains of two orders: the second order ranks the jobs that are equal under the first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.fairshare.share_tree import SharePath
from controller.core.model.job import Job
from controller.core.queue.order import DynamicOrder, Order, OrderView, weighs_queues
from controller.core.queue.queue import LaneGroup
from wire.api.reasons import Points


@dataclass(frozen=True, slots=True)
class StaticOrderChain:
    """A chain of two orders in which the positions of jobs never change."""

    name: ClassVar[str] = "ranked"

    first: Order
    second: Order

    def rank(self, job: Job) -> tuple[float, ...]:
        """Sort key; lower is first."""
        return *self.first.rank(job), *self.second.rank(job)


@dataclass(frozen=True, slots=True)
class DynamicOrderChain:
    """A chain with at least one order in which positions change with time or usage.

    If the other order is static, all jobs of a lane are equal under it.
    """

    name: ClassVar[str] = "ranked"

    first: Order
    second: Order

    @property
    def weighs_queues(self) -> bool:
        """Does either order use the priority of queues?"""
        return weighs_queues(self.first) or weighs_queues(self.second)

    def rank(self, job: Job) -> tuple[float, ...]:
        """The rank within a lane, from the dynamic orders only. A static order's rank is part of `group`."""
        moving = [order for order in (self.first, self.second) if isinstance(order, DynamicOrder)]
        return tuple(each for order in moving for each in order.rank(job))

    def group(self, job: Job, tenant: SharePath) -> LaneGroup:
        """The groups of both orders."""
        return *_group(self.first, job, tenant), *_group(self.second, job, tenant)

    def place(self, job: Job, view: OrderView) -> tuple[float, ...]:
        """Sort key; lower is first."""
        return *_place(self.first, job, view), *_place(self.second, job, view)

    def receipt(self, job: Job, view: OrderView) -> tuple[Points, ...]:
        """The points of the first order that reports points; empty if none does."""
        for order in (self.first, self.second):
            receipt = getattr(order, "receipt", None)
            if receipt is not None:
                found: tuple[Points, ...] = receipt(job, view)
                return found
        return ()


def chain_orders(first: Order, second: Order | None) -> Order:
    """The first order alone, or the chain of both."""
    if second is None:
        return first
    moves = isinstance(first, DynamicOrder) or isinstance(second, DynamicOrder)
    return DynamicOrderChain(first, second) if moves else StaticOrderChain(first, second)


def _group(order: Order, job: Job, tenant: SharePath) -> LaneGroup:
    return order.group(job, tenant) if isinstance(order, DynamicOrder) else order.rank(job)


def _place(order: Order, job: Job, view: OrderView) -> tuple[float, ...]:
    return order.place(job, view) if isinstance(order, DynamicOrder) else order.rank(job)
