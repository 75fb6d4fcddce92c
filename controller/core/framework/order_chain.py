"""Chains of two queue orders: the second order sorts the jobs that are equal in the first order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from controller.core.fairshare.share_tree import SharePath
from controller.core.model.job import Job
from controller.core.queue.order import DynamicOrder, Order, OrderView, compares_shares, weighs_queues
from controller.core.queue.queue import LaneGroup
from wire.api.reasons import Points


@dataclass(frozen=True, slots=True)
class StaticOrderChain:
    """A chain of two static orders. Under this chain, the queue position of a job does not change while the
    job waits.
    """

    name: ClassVar[str] = "ranked"

    first: Order
    second: Order

    def rank(self, job: Job) -> tuple[float, ...]:
        return *self.first.rank(job), *self.second.rank(job)


@dataclass(frozen=True, slots=True)
class DynamicOrderChain:
    """A chain of two queue orders. At least one of the two orders changes queue positions as time passes or
    tenants use resources.

    The queue keeps jobs with equal requests and equal `group` in one list (lane). The group contains the rank
    under a static order, so a static order ranks all jobs of a lane equally.
    """

    name: ClassVar[str] = "ranked"

    first: Order
    second: Order
    _moves: tuple[bool, bool] = field(init=False, compare=False, repr=False)
    """For the first and the second order: whether the order changes the positions of jobs while they wait.
    Computed once, because this check (an isinstance of a protocol) takes longer than the computation of a
    sort key.
    """

    def __post_init__(self) -> None:
        moves = isinstance(self.first, DynamicOrder), isinstance(self.second, DynamicOrder)
        object.__setattr__(self, "_moves", moves)

    @property
    def weighs_queues(self) -> bool:
        """True if at least one of the two orders uses the priority of the job's queue as a factor."""
        return weighs_queues(self.first) or weighs_queues(self.second)

    @property
    def compares_shares(self) -> bool:
        """True if at least one of the two orders compares the use of tenants."""
        return compares_shares(self.first) or compares_shares(self.second)

    def rank(self, job: Job) -> tuple[float, ...]:
        """Return the sort key of a job among jobs with an equal `group`. Only dynamic orders contribute to
        the key, because the rank under a static order is part of `group`.
        """
        moving = [order for order in (self.first, self.second) if isinstance(order, DynamicOrder)]
        return tuple(each for order in moving for each in order.rank(job))

    def group(self, job: Job, tenant: SharePath) -> LaneGroup:
        """Return the key of the lane (list of equal jobs) in which the queue keeps the job. Neither order
        changes the order of jobs within a lane while they wait.
        """
        return *_group(self.first, job, tenant), *_group(self.second, job, tenant)

    def place(self, job: Job, view: OrderView) -> tuple[float, ...]:
        first: Any = self.first
        second: Any = self.second
        moves_first, moves_second = self._moves
        return (
            *(first.place(job, view) if moves_first else first.rank(job)),
            *(second.place(job, view) if moves_second else second.rank(job)),
        )

    def receipt(self, job: Job, view: OrderView) -> tuple[Points, ...]:
        """Return the points that each factor adds to the job's priority, under the first of the two orders
        that uses points. Return an empty result if neither order uses points.
        """
        for order in (self.first, self.second):
            receipt = getattr(order, "receipt", None)
            if receipt is not None:
                found: tuple[Points, ...] = receipt(job, view)
                return found
        return ()


def chain_orders(first: Order, second: Order | None) -> Order:
    """Return the chain of both orders, or the first order alone if `second` is None."""
    if second is None:
        return first
    moves = isinstance(first, DynamicOrder) or isinstance(second, DynamicOrder)
    return DynamicOrderChain(first, second) if moves else StaticOrderChain(first, second)


def _group(order: Order, job: Job, tenant: SharePath) -> LaneGroup:
    return order.group(job, tenant) if isinstance(order, DynamicOrder) else order.rank(job)
