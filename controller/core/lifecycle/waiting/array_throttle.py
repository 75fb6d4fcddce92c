"""Limits how many elements of a job array run at a time (`--array 0-99%5`). The array has this number of
slots (here 5), and an element needs a slot to start.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from controller.core.model.events.event import Event
from controller.core.model.events.queued import GateClosed, GateOpened
from controller.core.model.job import Job
from wire.job.arrays import array_concurrency_limit
from wire.names import JobState, Reason


class ArrayThrottle:
    """The slots of one array: at most `limit` elements have a slot at a time.

    An element has a slot from the time it may start until it ends, is held, or has to wait for other jobs
    again. A free slot goes to the waiting element with the lowest job id.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.holding: set[int] = set()
        self.waiting: set[int] = set()
        self._heap: list[int] = []

    def update(self, job: Job) -> None:
        """Record whether this array element has a slot, waits for a slot, or neither."""
        closed, over = Reason.ARRAY in job.wait.gates, job.state.terminal
        (self.holding.discard if closed or over else self.holding.add)(job.id)
        if not closed or over or _waits_for_others(job):
            self.waiting.discard(job.id)
        elif job.id not in self.waiting:
            self.waiting.add(job.id)
            heapq.heappush(self._heap, job.id)

    @property
    def unused(self) -> bool:
        """True if no element has a slot and no element waits for one."""
        return not (self.holding or self.waiting)

    def next_element(self) -> int | None:
        """Return the id of the array element that gets the next slot. None if all slots are taken or no
        element waits.
        """
        heap = self._heap
        while heap and heap[0] not in self.waiting:
            heapq.heappop(heap)
        return heap[0] if heap and len(self.holding) < self.limit else None


class ArrayThrottles:
    """The slots of all arrays that have a limit of running elements and an element that has not ended.

    1. After each event about an element, `update` records the element's new state. If a slot may now have to
       go to another element, `update` adds the array to `unsettled`.
    2. `settle` takes slots from elements that cannot use them, then gives free slots to waiting elements.

    Invariant: after `settle` no slot is free while an element waits for one.
    Cost: O(log elements) for each event about an element; nothing without events.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.by_array: dict[int, ArrayThrottle] = {}
        self.unsettled: dict[int, list[int]] = {}
        """The arrays for which `settle` must be called, each with the elements that have a slot but cannot
        use it.
        """
        for job in jobs:
            self.update(job)
        self.by_array = {array: one for array, one in self.by_array.items() if not one.unused}
        # `settle` has nothing to do: all slots were assigned before these jobs were stored.
        self.unsettled.clear()

    def update(self, job: Job) -> None:
        """Record the state of a job after an event about it. Jobs that are in no array with a limit are
        ignored.
        """
        if job.array is None:
            return
        throttle = self.by_array.get(job.array)
        if throttle is None:
            limit = array_concurrency_limit(job.spec.array or "")
            if limit is None:
                return
            throttle = self.by_array[job.array] = ArrayThrottle(limit or 0)
        throttle.update(job)
        wasted = wastes_slot(job)
        if wasted or throttle.next_element() is not None or throttle.unused:
            wasting = self.unsettled.setdefault(job.array, [])
            if wasted:
                wasting.append(job.id)

    def settle(self, now: float, record: Callable[[Event], None]) -> None:
        """Take one array from `self.unsettled`, and move its slots to elements that can use them. `record`
        must apply each event and call `update` before it returns.
        """
        array, wasting = self.unsettled.popitem()
        for job in wasting:
            record(GateClosed(job, now, Reason.ARRAY))
        throttle = self.by_array[array]
        while (following := throttle.next_element()) is not None:
            record(GateOpened(following, now, Reason.ARRAY))
        # Each event recorded above has added the array to `unsettled` again. Remove the array, because all
        # its slots are given out now.
        self.unsettled.pop(array, None)
        if throttle.unused:
            del self.by_array[array]


def wastes_slot(job: Job) -> bool:
    """Return whether a queued array element has a slot that it cannot use, because it is held or waits for
    other jobs.
    """
    return _waits_for_others(job) and job.state is JobState.QUEUED and Reason.ARRAY not in job.wait.gates


def _waits_for_others(job: Job) -> bool:
    return job.held or Reason.DEPENDENCY in job.wait.gates
