"""Interfaces of order plugins, and the data that an order plugin may read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import ClassVar, Protocol, runtime_checkable

from controller.core.cluster.node_table import NodeTable
from controller.core.estimates.service_rates import ServiceRates
from controller.core.fairshare.share_tree import SharePath, ShareTree
from controller.core.model.job import Job
from controller.core.queue.queue import LaneGroup
from controller.core.quota.queue_rules import QueueRule


class OrderView:
    """Data that an order plugin may read about the cluster: the time, the usage of tenants and the size of
    the cluster.
    """

    def __init__(
        self,
        now: float,
        shares: ShareTree,
        queues: Mapping[str, QueueRule],
        columns: NodeTable,
        capacity: Callable[[], float],
        rationed: frozenset[SharePath] = frozenset(),
        service_rates: ServiceRates | None = None,
    ) -> None:
        self.now = now
        self.shares = shares
        self._queues = queues
        self._columns = columns
        self._capacity = capacity
        self.service_rates = service_rates or ServiceRates()
        self.rationed = rationed
        """The users, as paths in the fair-share tree, that have used more than their part of their project's
        usage, while another user of the project waits and has used less than its part (`rationed_users` in
        backfill/candidates/rationing.py).
        """

    def path(self, job: Job) -> SharePath:
        """Return the path of the job's user in the fair-share tree, for example (project, user)."""
        return self.shares.path(job.spec.project, job.user)

    def queue(self, job: Job) -> float:
        """Return the priority of the job's queue on a scale from 0 (lowest queue) to 1 (highest queue)."""
        lowest, highest = self._priority_range
        rule = self._queues.get(job.spec.queue)
        return ((rule.priority if rule else 0) - lowest) / (highest - lowest) if highest > lowest else 0.0

    @cached_property
    def _priority_range(self) -> tuple[int, int]:
        # The queue "default" has the priority 0. This queue exists even if the configuration does not define
        # it.
        found = [0, *(rule.priority for rule in self._queues.values())]
        return min(found), max(found)

    @cached_property
    def gpus(self) -> int:
        return int(self._columns.gpu_count.sum())

    @cached_property
    def capacity(self) -> float:
        """The capacity of the whole cluster in billing units per hour."""
        return self._capacity()


class Order(Protocol):
    """An order plugin, which ranks waiting jobs. The job with the lowest rank is first. Among jobs with equal
    ranks, the job with the lowest id is first.
    """

    name: ClassVar[str]

    def rank(self, job: Job) -> tuple[float, ...]:
        """Return the rank of the job: a sort key that must not change while the job waits."""
        ...


@runtime_checkable
class DynamicOrder(Protocol):
    """An order plugin under which queue positions change while jobs wait. The positions change with the age
    of jobs, or with the usage of tenants.
    """

    def group(self, job: Job, tenant: SharePath) -> LaneGroup:
        """Return the order group of a job of the tenant `tenant`. Jobs with equal requests and equal groups
        keep their order while they wait, and are sorted by `rank`.
        """
        ...

    def place(self, job: Job, view: OrderView) -> tuple[float, ...]:
        """Return the sort key of the job at the time `view.now`. The job with the lowest key is first.

        The start of another job must not make the key of this job lower.
        """
        ...


@runtime_checkable
class ServiceOrder(Protocol):
    """An order plugin that can rate running and waiting jobs alike, so that they take turns on GPUs
    (`[scheduler] slice_s`).
    """

    def seconds_per_end(self, job: Job, rates: ServiceRates, now: float) -> float:
        """Return a rating of a running or waiting job: the seconds of run time that are expected for each job
        end (see ServiceRates). The job with the lowest value should have the GPUs.
        """
        ...


def service_order(order: object) -> ServiceOrder | None:
    """Return `order`, or its first part if it is a chain of order plugins. Return None if jobs cannot take
    turns by this order.
    """
    first = getattr(order, "first", order)
    return first if isinstance(first, ServiceOrder) else None


def compares_shares(order: object) -> bool:
    """Return whether the order prefers jobs of tenants that have used less than their fair share. If it does,
    each lane (list of waiting jobs with equal requests) has the jobs of only one tenant.
    """
    return bool(getattr(order, "compares_shares", False))


def weighs_queues(order: Order) -> bool:
    """Return whether the order itself uses the priorities of queues. If not, jobs are sorted first by the
    priority of their queue and then by this order.
    """
    return bool(getattr(order, "weighs_queues", False))
