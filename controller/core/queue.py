"""The jobs that wait, by class. Adding, removing and looking at the first cost O(log n) or a memmove."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from controller.core.requests import Ask

Rank = tuple[float, ...]
Entry = tuple[Rank, int]


class Lane:
    """The waiting jobs of one class, best rank first. Removed ones are stepped over until compaction."""

    __slots__ = ("_entries", "_first", "_ranks", "ask", "blocked_at")

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.blocked_at = -1
        """`Nodes.gains` when the class last did not fit: until that grows, it still does not."""
        self._entries: list[Entry] = []
        self._first = 0
        self._ranks: dict[int, Rank] = {}

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[Entry]:
        """All entries in order, as they are when the first is asked for; removed ones are left out."""
        for entry in self._entries[self._first :]:
            if self._ranks.get(entry[1]) == entry[0]:
                yield entry

    def head(self) -> Entry | None:
        """The first job, or None."""
        entries, ranks = self._entries, self._ranks
        while self._first < len(entries):
            entry = entries[self._first]
            if ranks.get(entry[1]) == entry[0]:
                return entry
            self._first += 1
        return None

    def after(self, entry: Entry) -> Entry | None:
        """The first job behind this one, or None."""
        entries, ranks = self._entries, self._ranks
        for at in range(bisect_left(entries, entry, self._first), len(entries)):
            if entries[at] > entry and ranks.get(entries[at][1]) == entries[at][0]:
                return entries[at]
        return None

    def add(self, job: int, rank: Rank) -> None:
        """Put the job in its place."""
        self._ranks[job] = rank
        entry = (rank, job)
        at = bisect_left(self._entries, entry, self._first)
        if at == len(self._entries) or self._entries[at] != entry:  # else it came back to its old place
            self._entries.insert(at, entry)

    def remove(self, job: int) -> None:
        """Take the job out."""
        del self._ranks[job]
        stale = len(self._entries) - len(self._ranks)
        if stale > 64 and stale > len(self._ranks):
            self._entries = [entry for entry in self._entries if self._ranks.get(entry[1]) == entry[0]]
            self._first = 0

    def rank(self, job: int) -> Rank:
        """The rank a waiting job was given."""
        return self._ranks[job]


class Queue:
    """All lanes; a job is in at most one."""

    def __init__(self) -> None:
        self.lanes: dict[Ask, Lane] = {}
        self.fresh: list[int] = []
        """Jobs that came since the last cycle looked: when nothing else changed, only they matter."""
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
        self.fresh.append(job)

    def remove(self, job: int) -> None:
        """The job waits no longer; a job that does not wait is left alone."""
        lane = self._lane_of.pop(job, None)
        if lane is None:
            return
        lane.remove(job)
        if not len(lane):
            del self.lanes[lane.ask]

    def lane(self, job: int) -> Lane | None:
        """The lane the job waits in."""
        return self._lane_of.get(job)

    def entry(self, job: int) -> Entry:
        """The place of a waiting job, comparable with every other."""
        return self._lane_of[job].rank(job), job

    def ahead(self, job: int) -> int:
        """How many waiting jobs stand before this one."""
        place = self.entry(job)
        return sum(entry < place for lane in self.lanes.values() for entry in lane)
