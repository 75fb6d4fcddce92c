"""Where a waiting job stands among all others at one moment, for orders that move with time and use."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from controller.core.queue import Entry, Group, Placing, Queue
from controller.core.shares import Path
from wire.api.reasons import Points

if TYPE_CHECKING:
    from controller.core.jobs import Job
    from controller.core.plugin import Order
    from controller.core.state import State


class View:
    """What an order may look at: the moment, who used how much, and how large the cluster is."""

    def __init__(self, state: State, now: float) -> None:
        self.shares = state.shares
        self.now = now
        self._state = state

    def path(self, job: Job) -> Path:
        """Where the job's tenant stands in the tree of shares."""
        return self._state.tenant(job)

    def queue(self, job: Job) -> float:
        """What the priority of the job's queue is from the lowest (0) to the highest (1) of all queues."""
        lowest, highest = self._queues
        rule = self._state.quotas.rules.queues.get(job.spec.queue)
        return ((rule.priority if rule else 0) - lowest) / (highest - lowest) if highest > lowest else 0.0

    @cached_property
    def _queues(self) -> tuple[int, int]:
        # "default" is there without a table, too.
        found = [0, *(rule.priority for rule in self._state.quotas.rules.queues.values())]
        return min(found), max(found)

    @cached_property
    def gpus(self) -> int:
        """GPUs of the whole cluster."""
        return int(self._state.nodes.columns.gpu_count.sum())

    @cached_property
    def capacity(self) -> float:
        """What the whole cluster can give, in billing units per hour."""
        return self._state.capacity


@runtime_checkable
class Moving(Protocol):
    """An order in which places change while jobs wait: with age, or with what others use meanwhile."""

    def group(self, job: Job, tenant: Path) -> Group:
        """Jobs of one class and group keep their places among each other: by rank, then by submit order."""
        ...

    def place(self, job: Job, view: View) -> tuple[float, ...]:
        """The job's place at this moment; lower is first. Starting jobs must not better anybody's."""
        ...


def weighs_queues(order: Order) -> bool:
    """Does the order count a queue's priority among its own reasons?"""
    return bool(getattr(order, "weighs_queues", False))


def receipt_of(state: State, job: Job, now: float) -> tuple[Points, ...]:
    """What the job's place is made of, if its order counts points."""
    receipt = getattr(state.queue_of(job).order, "receipt", None)
    if receipt is None:
        return ()
    found: tuple[Points, ...] = receipt(job, View(state, now))
    return found


def placing(state: State, queue: Queue, now: float) -> Placing | None:
    """Places at this moment, or None if the order never moves: then entries compare as they are."""
    moving, jobs, quotas = queue.moving, state.jobs, state.quotas
    if moving is None and not quotas.graded:
        return None
    view = View(state, now)

    def place(entry: Entry) -> Entry:
        rank, number = entry
        job = jobs[number]
        before = state.tier(job) if moving is None else (*state.tier(job), *moving.place(job, view))
        if quotas.graded:
            before = (float(state.beyond(job, now) is not None), *before)
        return (*before, *rank), number

    return place
