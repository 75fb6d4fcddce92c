"""The jobs that wait, by class and group. Adding, removing, looking at the first: O(log n) or a memmove."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.core.requests import Ask
from wire.words import Reason

if TYPE_CHECKING:
    from controller.core.plugin import Order
    from controller.core.standing import Moving

NO_END = float("inf")
FEW = 8
"""So many removed ones are not worth tidying up after."""
Rank = tuple[float, ...]
Entry = tuple[Rank, int]
Group = tuple[Hashable, ...]
"""Jobs of one group keep their places among each other for as long as they wait."""
Placing = Callable[[Entry], Entry]
"""An entry with its place among all that wait, at one moment; None where that is the entry itself."""


@dataclass(slots=True)
class Hope:
    """Whether a class may fit somewhere; shared by its lanes."""

    blocked_at: int = -1
    """`Nodes.gains` when the class last did not fit: until that grows, it still does not."""
    why: Reason = Reason.RESOURCES
    """What it lacked then."""
    lanes: int = 0

    def block(self, gains: int, why: Reason = Reason.RESOURCES) -> None:
        """The class does not fit as things are."""
        self.blocked_at, self.why = gains, why


class Lane:
    """The waiting jobs of one class and group, best rank first. Removed ones are stepped over for a while."""

    __slots__ = ("_entries", "_first", "_ranks", "ask", "group", "hope")

    def __init__(self, ask: Ask, group: Group, hope: Hope) -> None:
        self.ask = ask
        self.group = group
        self.hope = hope
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

    def before(self, place: Entry, placing: Placing) -> int:
        """How many stand before this place; places only grow along a lane."""
        live = list(self)
        return bisect_left(live, place, key=placing)

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
        if stale > FEW and stale > len(self._ranks):
            self._entries = [entry for entry in self._entries if self._ranks.get(entry[1]) == entry[0]]
            self._first = 0

    def rank(self, job: int) -> Rank:
        """The rank a waiting job was given."""
        return self._ranks[job]


class Queue:
    """All lanes of one order; a job is in at most one."""

    def __init__(self, order: Order, moving: Moving | None = None) -> None:
        self.order = order
        self.moving = moving
        """The order, if places in it change while jobs wait."""
        self.lanes: dict[tuple[Ask, Group], Lane] = {}
        self.fresh: list[int] = []
        """Jobs that came since the last cycle looked: when nothing else changed, only they matter."""
        self._hopes: dict[Ask, Hope] = {}
        self.kept_out: dict[int, Reason] = {}
        """Jobs that there is room for, and what kept them waiting all the same in the last whole pass."""
        self.shut: dict[Lane, Reason] = {}
        """Whole lanes that something kept waiting in that pass, whatever room there was."""
        self._lane_of: dict[int, Lane] = {}
        self.dated: list[tuple[float, int]] = []
        """Jobs with a deadline by the last moment at which they can start."""
        self._latest: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._lane_of)

    def __contains__(self, job: int) -> bool:
        return job in self._lane_of

    def __iter__(self) -> Iterator[Lane]:
        return iter(self.lanes.values())

    def add(self, job: int, ask: Ask, rank: Rank, group: Group = (), latest_start: float = NO_END) -> None:
        """The job waits from now on."""
        if latest_start < NO_END:
            insort(self.dated, (latest_start, job))
            self._latest[job] = latest_start
        lane = self.lanes.get((ask, group))
        if lane is None:
            hope = self._hopes.setdefault(ask, Hope())
            hope.lanes += 1
            lane = self.lanes[ask, group] = Lane(ask, group, hope)
        lane.add(job, rank)
        self._lane_of[job] = lane
        self.fresh.append(job)

    def remove(self, job: int) -> None:
        """The job waits no longer; a job that does not wait is left alone."""
        self.kept_out.pop(job, None)
        latest_start = self._latest.pop(job, None) if self._latest else None
        if latest_start is not None:
            del self.dated[bisect_left(self.dated, (latest_start, job))]
        lane = self._lane_of.pop(job, None)
        if lane is None:
            return
        lane.remove(job)
        if not len(lane):
            del self.lanes[lane.ask, lane.group]
            self.shut.pop(lane, None)
            lane.hope.lanes -= 1
            if not lane.hope.lanes:
                del self._hopes[lane.ask]

    def forget_kept_out(self) -> None:
        """A whole pass begins."""
        self.kept_out.clear()
        self.shut.clear()

    def lane(self, job: int) -> Lane | None:
        """The lane the job waits in."""
        return self._lane_of.get(job)

    def entry(self, job: int) -> Entry:
        """The place of a waiting job, comparable with every other."""
        return self._lane_of[job].rank(job), job

    def ahead(self, job: int, placing: Placing | None = None) -> int:
        """How many waiting jobs stand before this one."""
        entry = self.entry(job)
        if placing is None:
            return sum(other < entry for lane in self.lanes.values() for other in lane)
        place = placing(entry)
        return sum(lane.before(place, placing) for lane in self.lanes.values())
