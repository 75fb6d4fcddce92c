"""Limits how many jobs of a group run at a time. A group is the elements of an array (`--array 0-99%5`), or
the jobs of a workload (`max_parallel`). A group has as many run slots (permits to run) as its limit, and a
job needs a run slot to start.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from controller.core.model.events.event import Event
from controller.core.model.events.queued import GateClosed, GateOpened
from controller.core.model.job import Job
from controller.core.state.state import State
from wire.job.arrays import array_concurrency_limit
from wire.names import JobState, Reason


@dataclass(frozen=True, slots=True)
class ThrottleKind:
    """A type of group with a limit of running jobs: arrays or workloads. `group` returns the id of a job's
    group (None if the job is in no group). The gate `gate` keeps the job out of the queue until the job has a
    run slot. A job with one of the closed gates `before` cannot use a run slot.
    """

    gate: Reason
    group: Callable[[Job], int | None]
    limit: Callable[[State, Job], int | None]
    """Returns the number of run slots of the job's group; None means no limit."""
    before: frozenset[Reason]


def workload_limit(state: State, job: Job) -> int | None:
    """Return how many jobs of the job's workload may run at a time; None means no limit."""
    workload = state.workloads.by_id.get(job.workload or 0)
    return None if workload is None else workload.max_parallel


ARRAYS = ThrottleKind(
    Reason.ARRAY,
    lambda job: job.array,
    lambda _state, job: array_concurrency_limit(job.spec.array or ""),
    frozenset({Reason.DEPENDENCY}),
)
WORKLOADS = ThrottleKind(
    Reason.WORKLOAD,
    lambda job: job.workload,
    workload_limit,
    frozenset({Reason.DEPENDENCY, Reason.ARRAY}),
)


class Throttle:
    """The run slots of one group: at most `limit` jobs have a run slot at a time.

    A job gets a run slot while it waits. It loses the run slot when it ends, is held, or must wait for other
    jobs. A free run slot goes to the waiting job with the lowest id.
    """

    def __init__(self, kind: ThrottleKind, limit: int) -> None:
        self.limit = limit
        self.holding: set[int] = set()
        self.waiting: set[int] = set()
        self._kind = kind
        self._heap: list[int] = []

    def update(self, job: Job) -> None:
        """Record whether this job has a run slot, waits for a run slot, or does neither."""
        closed, over = self._kind.gate in job.wait.gates, job.state.terminal
        (self.holding.discard if closed or over else self.holding.add)(job.id)
        if not closed or over or _waits_for_others(self._kind, job):
            self.waiting.discard(job.id)
        elif job.id not in self.waiting:
            self.waiting.add(job.id)
            heapq.heappush(self._heap, job.id)

    @property
    def unused(self) -> bool:
        """True if no job has a run slot and no job waits for one."""
        return not (self.holding or self.waiting)

    def next_job(self) -> int | None:
        """Return the id of the job that gets the next run slot. Return None if all run slots are taken, or if
        no job waits for one.
        """
        heap = self._heap
        while heap and heap[0] not in self.waiting:
            heapq.heappop(heap)
        return heap[0] if heap and len(self.holding) < self.limit else None


class Throttles:
    """The run slots of all groups of one type: arrays or workloads. Groups without a limit and groups whose
    jobs have all ended are left out.

    1. After each event about a job, `update` records the job's new state. If another job may now get a run
       slot, `update` adds the group to `unsettled`.
    2. `settle` takes run slots from jobs that cannot use their run slots, then assigns free run slots to
       waiting jobs.

    Invariant: after `settle` no run slot is free while a job waits for one. Cost: O(log jobs of the group)
    for each event about a job; nothing without events.
    """

    def __init__(self, kind: ThrottleKind, state: State) -> None:
        self._kind = kind
        self._state = state
        self.by_group: dict[int, Throttle] = {}
        self.unsettled: dict[int, dict[int, None]] = {}
        """The groups for which `settle` must be called. Each group is stored with the jobs that hold a run
        slot but cannot use the run slot.
        """
        for job in state.live():
            self.update(job)
        self.by_group = {group: one for group, one in self.by_group.items() if not one.unused}
        # `settle` has nothing to do here, because all run slots were assigned before these jobs were stored.
        self.unsettled.clear()

    def update(self, job: Job) -> None:
        """Record the state of a job after an event about the job. Jobs in no group with a limit
        are ignored.
        """
        group = self._kind.group(job)
        if group is None:
            return
        throttle = self.by_group.get(group)
        if throttle is None:
            limit = self._kind.limit(self._state, job)
            if limit is None:
                return
            throttle = self.by_group[group] = Throttle(self._kind, limit)
        throttle.update(job)
        wasted = wastes_slot(self._kind, job)
        if wasted or throttle.next_job() is not None or throttle.unused:
            wasting = self.unsettled.setdefault(group, {})
            if wasted:
                wasting[job.id] = None

    def settle(self, now: float, record: Callable[[Event], None]) -> None:
        """Take one group from `self.unsettled`, and give its run slots to jobs that can use them. The
        function `record` records an event. It must apply the event and call `update` before it returns.
        """
        group, wasting = self.unsettled.popitem()
        for job in wasting:
            record(GateClosed(job, now, self._kind.gate))
        throttle = self.by_group[group]
        while (following := throttle.next_job()) is not None:
            record(GateOpened(following, now, self._kind.gate))
        # The events recorded above have added the group to `unsettled` again. Remove the group, because all
        # its run slots are now assigned.
        self.unsettled.pop(group, None)
        if throttle.unused:
            del self.by_group[group]


def wastes_slot(kind: ThrottleKind, job: Job) -> bool:
    """Return whether a queued job wastes its run slot, because the job is held or waits for other jobs."""
    return _waits_for_others(kind, job) and job.state is JobState.QUEUED and kind.gate not in job.wait.gates


def _waits_for_others(kind: ThrottleKind, job: Job) -> bool:
    return job.held or not kind.before.isdisjoint(job.wait.gates)
