"""The queue of waiting jobs, divided into lanes of jobs with equal requests.

Jobs with the same resource request form a request class. If one job of a class does not fit on the nodes, no
job of the class fits. An order plugin may divide a request class into groups, for example by user. A lane has
the waiting jobs of one request class and one group. Jobs of one lane keep their order while they wait, so the
scheduler considers only the first job of a lane.

Cost: adding a job takes one bisection and one list insertion. Removing a job and reading the first job are
O(1) on average. The entry of a removed job stays in its lane until the lane has more removed entries than
waiting jobs.

Example: 5,000 jobs of user ann request one GPU, and 3 jobs of user bob request eight. With the order `fifo`
these are two lanes. If bob's first job does not fit, his other two jobs are not tried until resources become
free.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.core.model.request import ResourceRequest
from wire.names import Reason

if TYPE_CHECKING:
    from controller.core.queue.order import DynamicOrder, Order

NO_END = float("inf")
ALWAYS = float("-inf")
"""`waits_since` of a job that was preempted. The job counts as having waited longer than all other jobs."""
MIN_STALE = 8
"""A lane keeps up to this many entries of removed jobs. If there are more, they are deleted once they
outnumber the waiting jobs.
"""
Rank = tuple[float, ...]
QueueEntry = tuple[Rank, int]
"""The rank and the id of a waiting job. In one queue, the job with the lowest entry is first."""
LaneGroup = tuple[Hashable, ...]
"""The key by which an order plugin divides jobs with equal requests into lanes. Jobs of one lane keep their
order while they wait.
"""
PositionKey = Callable[[QueueEntry], QueueEntry]
"""A function that returns the present sort key of a queue entry. It is used for orders in which the sort keys
of waiting jobs change with time or usage.
"""


@dataclass(slots=True)
class ClassFit:
    """The result of the last try to place a job with one resource request. All lanes of jobs with this
    request share one object.
    """

    blocked_at: int = -1
    """The value of `Nodes.room_version` at the last try at which the request did not fit. The request cannot
    fit before this version increases.
    """
    why: Reason = Reason.RESOURCES
    """The reason why the request did not fit at the last try."""
    lanes: int = 0

    def block(self, room_version: int, why: Reason = Reason.RESOURCES) -> None:
        """Record that jobs with this resource request do not fit now, for the reason `why`.

        `room_version` is the present value of `Nodes.room_version`. This version increases when resources
        become free. Until then the scheduler does not try these jobs again.
        """
        self.blocked_at, self.why = room_version, why


class Lane:
    """A list of waiting jobs with equal requests, sorted by rank. Jobs of one lane never overtake each other.

    `_entries` is sorted and may contain entries of removed jobs. `ranks` contains only the waiting jobs. An
    entry is valid if `ranks` contains its job with the same rank. A job that is removed and added again with
    another rank gets a new entry. `_first` is an index: all entries before it are entries of removed jobs.
    """

    __slots__ = ("_entries", "_first", "ask", "fit", "group", "ranks", "version", "waits_since")

    def __init__(self, ask: ResourceRequest, group: LaneGroup, fit: ClassFit) -> None:
        self.ask = ask
        self.group = group
        self.fit = fit
        self._entries: list[QueueEntry] = []
        self._first = 0
        self.ranks: dict[int, Rank] = {}
        """The rank (sort key) of each waiting job, by job id."""
        self.waits_since = NO_END
        """No job of the lane began to wait before this time."""
        self.version = 0
        """A version number that increases when a job is added or removed. A waiting job that is edited, or
        whose priority changes, is removed and added again.
        """

    def __len__(self) -> int:
        return len(self.ranks)

    def __iter__(self) -> Iterator[QueueEntry]:
        """Yield the entry (rank, id) of each waiting job, the lowest rank first.

        Jobs that are added or removed during the iteration are not yielded.
        """
        for entry in self._entries[self._first :]:
            if self.ranks.get(entry[1]) == entry[0]:
                yield entry

    def head(self) -> QueueEntry | None:
        """Return the entry (rank, id) of the first job in the lane; None if the lane is empty."""
        entries, ranks = self._entries, self.ranks
        while self._first < len(entries):
            entry = entries[self._first]
            if ranks.get(entry[1]) == entry[0]:
                return entry
            self._first += 1
        return None

    def after(self, entry: QueueEntry) -> QueueEntry | None:
        """Return the entry (rank, id) of the job that comes after `entry` in the lane. Return None if `entry`
        is the last one.
        """
        entries, ranks = self._entries, self.ranks
        for at in range(bisect_left(entries, entry, self._first), len(entries)):
            if entries[at] > entry and ranks.get(entries[at][1]) == entries[at][0]:
                return entries[at]
        return None

    def before(self, position: QueueEntry, position_key: PositionKey) -> int:
        """Return how many jobs of the lane have a lower sort key than `position`. `position_key` is the
        function that computes the sort key of an entry.
        """
        return bisect_left(list(self), position, key=position_key)

    def add(self, job: int, rank: Rank, waits_since: float) -> None:
        """Insert the job into the lane, behind all jobs with a lower rank."""
        if waits_since < self.waits_since:
            self.waits_since = waits_since
        self.ranks[job] = rank
        self.version += 1
        entry = (rank, job)
        at = bisect_left(self._entries, entry, self._first)
        # Do not insert a second entry. If a job was removed and is added again with the same rank, the list
        # still has its old entry.
        if at == len(self._entries) or self._entries[at] != entry:
            self._entries.insert(at, entry)

    def remove(self, job: int) -> None:
        """Remove the job. Raise KeyError if the job is not in the lane."""
        del self.ranks[job]
        self.version += 1
        stale = len(self._entries) - len(self.ranks)
        if stale > MIN_STALE and stale > len(self.ranks):
            self._entries = [entry for entry in self._entries if self.ranks.get(entry[1]) == entry[0]]
            self._first = 0


class Queue:
    """The waiting jobs of one scheduler profile, in lanes of jobs with equal requests. A job is in at most
    one lane.
    """

    def __init__(self, order: Order, moving: DynamicOrder | None = None) -> None:
        self.order = order
        self.moving = moving
        """The order plugin of the queue if the sort keys of waiting jobs change with time or usage; None for
        any other order plugin.
        """
        self.lanes: dict[tuple[ResourceRequest, LaneGroup], Lane] = {}
        self.gang_lanes: dict[Lane, None] = {}
        """The lanes whose jobs may need several nodes. Every waiting gang is in one of these lanes."""
        self.rationed: frozenset[tuple[str, ...]] = frozenset()
        """The users, as paths in the fair-share tree, that the last cycle over all jobs found above their
        part of their project's usage (backfill/candidates/rationing.py).
        """
        self.new_jobs: dict[int, None] = {}
        """Waiting jobs that were added since the last cycle. If nothing else has changed, a cycle tries only
        these jobs.
        """
        self.pending_reasons: dict[int, Reason] = {}
        """The reason why each of these jobs was not started, by job id. The jobs fit on nodes, but the last
        cycle over all jobs did not start them.
        """
        self.lane_pending_reasons: dict[Lane, Reason] = {}
        """The reason, such as a quota, why the last cycle over all jobs skipped each of these lanes as a
        whole.
        """
        self.by_latest_start: list[tuple[float, int]] = []
        """(latest start, job) for each waiting job with a deadline, sorted by the latest start."""
        self._fits: dict[ResourceRequest, ClassFit] = {}
        self._lane_of: dict[int, Lane] = {}
        self._latest_start: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._lane_of)

    def __contains__(self, job: int) -> bool:
        return job in self._lane_of

    def __iter__(self) -> Iterator[Lane]:
        return iter(self.lanes.values())

    def add(
        self,
        job: int,
        ask: ResourceRequest,
        rank: Rank,
        group: LaneGroup = (),
        latest_start: float = NO_END,
        waits_since: float = ALWAYS,
    ) -> None:
        """Add a job to the lane of the waiting jobs with its request `ask` and its order group `group`.

        `latest_start` is the time by which the job must start to meet its deadline; NO_END if there is no
        deadline. `waits_since` is the time at which the job has entered the queue, or ALWAYS for a job that
        was preempted.
        """
        if latest_start < NO_END:
            insort(self.by_latest_start, (latest_start, job))
            self._latest_start[job] = latest_start
        lane = self.lanes.get((ask, group))
        if lane is None:
            fit = self._fits.setdefault(ask, ClassFit())
            fit.lanes += 1
            lane = self.lanes[ask, group] = Lane(ask, group, fit)
            # A request with GPUs but without a number of nodes may need several nodes. It counts as a gang if
            # it has more than one GPU.
            if (ask.nodes or ask.part.gpus) > 1:
                self.gang_lanes[lane] = None
        lane.add(job, rank, waits_since)
        self._lane_of[job] = lane
        self.new_jobs[job] = None

    def remove(self, job: int) -> None:
        """Remove a job. Do nothing if the job is not in the queue."""
        self.new_jobs.pop(job, None)
        self.pending_reasons.pop(job, None)
        latest_start = self._latest_start.pop(job, None) if self._latest_start else None
        if latest_start is not None:
            del self.by_latest_start[bisect_left(self.by_latest_start, (latest_start, job))]
        lane = self._lane_of.pop(job, None)
        if lane is None:
            return
        lane.remove(job)
        if not lane.ranks:
            del self.lanes[lane.ask, lane.group]
            self.gang_lanes.pop(lane, None)
            self.lane_pending_reasons.pop(lane, None)
            lane.fit.lanes -= 1
            if not lane.fit.lanes:
                del self._fits[lane.ask]

    def lane(self, job: int) -> Lane | None:
        """Return the lane of a waiting job; None if the job is not in the queue."""
        return self._lane_of.get(job)

    def entry(self, job: int) -> QueueEntry:
        """Return (rank, id) of a waiting job. In one queue, the job with the lowest entry is first."""
        return self._lane_of[job].ranks[job], job

    def in_order(self, position_key: PositionKey | None = None) -> Iterator[int]:
        """Yield the ids of all waiting jobs, in queue order.

        `position_key` computes the present sort keys if the order depends on time or usage. None: the order
        depends on neither. Cost: one sort key for each lane, then O(log lanes) for each id that is read.
        """
        return (job for _, job in heapq.merge(*self.lanes.values(), key=position_key))

    def first_ahead(self, job: int, position_key: PositionKey | None = None) -> Iterator[int]:
        """Yield the ids of the waiting jobs before this job, in queue order.

        `position_key` computes the present sort keys if the order depends on time or usage. None: the order
        depends on neither.
        """
        own = self.entry(job) if position_key is None else position_key(self.entry(job))
        for entry in heapq.merge(*self.lanes.values(), key=position_key):
            if (entry if position_key is None else position_key(entry)) >= own:
                return
            yield entry[1]

    def ahead(self, job: int, position_key: PositionKey | None = None) -> int:
        """Return how many waiting jobs come before this job.

        `position_key` computes the present sort keys if the order depends on time or usage. None: the order
        depends on neither.
        """
        entry = self.entry(job)
        if position_key is None:
            return sum(other < entry for lane in self.lanes.values() for other in lane)
        position = position_key(entry)
        return sum(lane.before(position, position_key) for lane in self.lanes.values())


class ProfileQueues:
    """The queues of all scheduler profiles, used like one queue. A job is in the queue of at most one
    profile.
    """

    def __init__(self, by_name: Mapping[str, Queue]) -> None:
        self.by_name = by_name

    def __len__(self) -> int:
        return sum(len(queue) for queue in self.by_name.values())

    def __contains__(self, job: int) -> bool:
        return any(job in queue for queue in self.by_name.values())

    def __iter__(self) -> Iterator[Lane]:
        for queue in self.by_name.values():
            yield from queue

    def remove(self, job: int) -> None:
        """Remove a job. Do nothing if the job is in no queue."""
        for queue in self.by_name.values():
            queue.remove(job)

    def lane(self, job: int) -> Lane | None:
        """Return the lane (list of jobs with equal requests) of a waiting job; None if the job is in no
        queue.
        """
        return next((lane for queue in self.by_name.values() if (lane := queue.lane(job)) is not None), None)

    def entry(self, job: int) -> QueueEntry:
        """Return (rank, id) of a waiting job. In one scheduler profile, the job with the lowest entry is
        first.
        """
        return next(queue.entry(job) for queue in self.by_name.values() if job in queue)
