"""Two orders, one after the other: the second decides where the first sees no difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.jobs import Job
from controller.core.plugin import Order
from controller.core.queue import Group
from controller.core.shares import Path
from controller.core.standing import Moving, View, weighs_queues
from wire.api.reasons import Points


@dataclass(frozen=True, slots=True)
class Ranked:
    """Neither moves, so neither does this."""

    name: ClassVar[str] = "ranked"

    first: Order
    second: Order

    def rank(self, job: Job) -> tuple[float, ...]:
        """Lower is first."""
        return *self.first.rank(job), *self.second.rank(job)


@dataclass(frozen=True, slots=True)
class RankedMoving:
    """One of them moves; in a group, what the other says of a job is the same for all."""

    name: ClassVar[str] = "ranked"

    first: Order
    second: Order

    @property
    def weighs_queues(self) -> bool:
        """Does either of them?"""
        return weighs_queues(self.first) or weighs_queues(self.second)

    def rank(self, job: Job) -> tuple[float, ...]:
        """Within a group, as the one that moves has it; what does not move is part of the group."""
        moving = [order for order in (self.first, self.second) if isinstance(order, Moving)]
        return tuple(each for order in moving for each in order.rank(job))

    def group(self, job: Job, tenant: Path) -> Group:
        """Alike for both."""
        return *_group(self.first, job, tenant), *_group(self.second, job, tenant)

    def place(self, job: Job, view: View) -> tuple[float, ...]:
        """Lower is first."""
        return *_place(self.first, job, view), *_place(self.second, job, view)

    def receipt(self, job: Job, view: View) -> tuple[Points, ...]:
        """Of whichever counts points."""
        for order in (self.first, self.second):
            receipt = getattr(order, "receipt", None)
            if receipt is not None:
                found: tuple[Points, ...] = receipt(job, view)
                return found
        return ()


def ranked(first: Order, second: Order | None) -> Order:
    """The first alone, or both."""
    if second is None:
        return first
    moves = isinstance(first, Moving) or isinstance(second, Moving)
    return RankedMoving(first, second) if moves else Ranked(first, second)


def _group(order: Order, job: Job, tenant: Path) -> Group:
    return order.group(job, tenant) if isinstance(order, Moving) else order.rank(job)


def _place(order: Order, job: Job, view: View) -> tuple[float, ...]:
    return order.place(job, view) if isinstance(order, Moving) else order.rank(job)
