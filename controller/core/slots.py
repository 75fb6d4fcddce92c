"""Arrays of which only so many elements may run at once: who has a slot, and who is next."""

from __future__ import annotations

import heapq

from controller.core.jobs import Job
from wire.words import JobState, Reason


class Slots:
    """The slots of one array.

    An element has one from the moment its gate opens until it ends, is held, or has to wait for other jobs.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken: set[int] = set()
        self.wanting: set[int] = set()
        self._heap: list[int] = []

    def update(self, job: Job) -> None:
        """Something has happened to this element."""
        closed, over = Reason.ARRAY in job.wait.gates, job.state.terminal
        (self.taken.discard if closed or over else self.taken.add)(job.id)
        if not closed or over or _waits_for_others(job):
            self.wanting.discard(job.id)
        elif job.id not in self.wanting:
            self.wanting.add(job.id)
            heapq.heappush(self._heap, job.id)

    @property
    def unused(self) -> bool:
        """Nobody has a slot, and nobody wants one."""
        return not (self.taken or self.wanting)

    def next(self) -> int | None:
        """The first that wants a slot, if there is one to give."""
        heap = self._heap
        while heap and heap[0] not in self.wanting:
            heapq.heappop(heap)
        return heap[0] if heap and len(self.taken) < self.most else None


def wastes_slot(job: Job) -> bool:
    """Could others use its slot, while it waits for what they may never come to without one?"""
    return _waits_for_others(job) and job.state is JobState.QUEUED and Reason.ARRAY not in job.wait.gates


def _waits_for_others(job: Job) -> bool:
    return job.held or Reason.DEPENDENCY in job.wait.gates
