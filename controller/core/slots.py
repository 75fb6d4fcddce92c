"""Arrays of which only so many elements may run at once: who has a slot, and who is next."""

from __future__ import annotations

import heapq

from controller.core.jobs import Job
from wire.words import JobState, Reason


class Slots:
    """The slots of one array. An element has one from the moment its gate opens until it ends or is held."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken: set[int] = set()
        self.wanting: set[int] = set()
        self._heap: list[int] = []

    def update(self, job: Job) -> None:
        """Something has happened to this element."""
        closed, over = Reason.ARRAY in job.wait.gates, job.state.terminal
        (self.taken.discard if closed or over else self.taken.add)(job.id)
        if not closed or over or job.held:
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
    """Is it held, though it could have a slot that others would use?"""
    return job.held and job.state is JobState.QUEUED and Reason.ARRAY not in job.wait.gates
