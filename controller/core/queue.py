"""The jobs that wait, by class. Adding, removing and looking at the first cost O(log n) at most."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from controller.core.requests import Ask

Rank = tuple[float, ...]


class Lane:
    """The waiting jobs of one class, best rank first. Removed ones are skipped when they surface."""

    __slots__ = ("ask", "blocked_at", "heap", "ranks")

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.heap: list[tuple[Rank, int]] = []
        self.ranks: dict[int, Rank] = {}
        self.blocked_at = -1
        """`Nodes.gains` when the class last did not fit: until that grows, it still does not."""

    def __len__(self) -> int:
        return len(self.ranks)

    def head(self) -> tuple[Rank, int] | None:
        """The first job, or None."""
        while self.heap:
            rank, job = self.heap[0]
            if self.ranks.get(job) == rank:
                return self.heap[0]
            heapq.heappop(self.heap)
        return None

    def add(self, job: int, rank: Rank) -> None:
        """Put the job in its place."""
        self.ranks[job] = rank
        heapq.heappush(self.heap, (rank, job))

    def remove(self, job: int) -> None:
        """Take the job out; its heap entry goes when it surfaces, or when most entries are stale."""
        del self.ranks[job]
        if len(self.heap) > 64 and len(self.heap) > 2 * len(self.ranks):
            self.heap = [(rank, each) for each, rank in self.ranks.items()]
            heapq.heapify(self.heap)


class Queue:
    """All lanes; a job is in at most one."""

    def __init__(self) -> None:
        self.lanes: dict[Ask, Lane] = {}
        self._lane_of: dict[int, Lane] = {}

    def __len__(self) -> int:
        return len(self._lane_of)

    def __contains__(self, job: int) -> bool:
        return job in self._lane_of

    def __iter__(self) -> Iterator[Lane]:
        return iter(self.lanes.values())

    def add(self, job: int, ask: Ask, rank: Rank) -> None:
        """The job waits from now on."""
        lane = self.lanes.get(ask)
        if lane is None:
            lane = self.lanes[ask] = Lane(ask)
        lane.add(job, rank)
        self._lane_of[job] = lane

    def remove(self, job: int) -> None:
        """The job waits no longer; a job that does not wait is left alone."""
        lane = self._lane_of.pop(job, None)
        if lane is None:
            return
        lane.remove(job)
        if not lane.ranks:
            del self.lanes[lane.ask]

    def lane(self, job: int) -> Lane | None:
        """The lane the job waits in."""
        return self._lane_of.get(job)

    def ahead(self, job: int) -> int:
        """How many waiting jobs stand before this one."""
        lane = self._lane_of[job]
        place = (lane.ranks[job], job)
        return sum(
            (rank, each) < place for other in self.lanes.values() for each, rank in other.ranks.items()
        )
