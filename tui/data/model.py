"""The state of the cluster for the screens. This module uses no widget, no network and no clock."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from heapq import nlargest
from typing import Final

from tui.data.cluster_feed import KEPT_ENDED, KEPT_EVENTS, Changes, ConnectionStatus
from tui.data.lists.cluster_lists import event_listing, job_listing, job_order, node_listing
from tui.data.lists.move_lists import move_listing
from tui.data.lists.tenant_lists import quota_listing, reservation_listing, share_listing
from tui.data.load_history import LoadHistory
from tui.pulse.alarms import FAILED_FOR_S, Alarm, alarms
from tui.pulse.history import PulseHistory
from wire.api.jobs import JobView, QueuePlace
from wire.api.service.cluster import ClusterView, EventView
from wire.names import WHOLE_GPU, JobState, Reason

SILENCE_S: Final = 12.0
"""If no message has arrived for this many seconds, the shown state counts as out of date. The controller
sends a message every 5 seconds.
"""
KEPT_ENDS: Final = 200
"""The number of jobs in `ClusterModel.last_ends`."""


class ClusterModel:
    """The last known state of the cluster, and the lists of jobs, nodes, events, shares, quotas, reservations
    and moves that the views show.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._skew = 0.0
        self.name = ""
        self.connection = ConnectionStatus()
        self.jobs = job_listing(self._order_of)
        self.nodes = node_listing()
        self.events = event_listing()
        self.shares = share_listing()
        self.quotas = quota_listing()
        self.reservations = reservation_listing()
        self.steps = move_listing()
        self.counts: Counter[JobState] = Counter()
        self.gpus = 0
        self.gpus_used = 0.0
        self.history = PulseHistory()
        self.loads = LoadHistory()
        self.alarms: list[Alarm] = []
        self.running: dict[int, JobView] = {}
        """The jobs that hold nodes, by job id."""
        self.waiting: dict[int, JobView] = {}
        """The jobs in the queue, by job id."""
        self._failed: dict[int, float] = {}
        """The times at which jobs failed, by job id, for the last FAILED_FOR_S seconds."""
        self._waiting_long = 0
        self._controller_alarms: tuple[str, ...] = ()
        self._at_quota: set[int] = set()
        """The ids of the jobs that wait for a quota."""
        self.last_ends: deque[int] = deque(maxlen=KEPT_ENDS)
        """The ids of the jobs that have ended last, oldest first."""
        self.places: dict[int, QueuePlace] = {}
        """The places of waiting jobs in the queue, by job id."""
        self._recent: deque[int] = deque()
        self._ended: deque[int] = deque()

    def now(self) -> float:
        return self._clock() + self._skew

    def silent_s(self) -> float:
        return self._clock() - self.connection.last_message_at

    @property
    def stale(self) -> bool:
        """Return True if the shown state may be out of date: the connection is not live, or no message has
        arrived for SILENCE_S seconds.
        """
        return self.connection.state != "live" or self.silent_s() > SILENCE_S

    def apply(self, changes: Changes) -> None:
        self.connection = changes.connection
        if changes.cluster is not None:
            self._greet(changes.cluster)
        if changes.fresh:
            self._start_over()
        if changes.jobs or changes.fresh:
            self._count_jobs(changes.jobs)
            (self.jobs.replace if changes.fresh else self.jobs.put)(changes.jobs)
            if changes.fresh:
                ended = (job for job in changes.jobs if job.state.terminal)
                last = nlargest(KEPT_ENDS, ended, key=lambda job: job.ended_at or 0.0)
                self.last_ends = deque((job.id for job in reversed(last)), KEPT_ENDS)
            self._trim_jobs()
        if changes.nodes or changes.fresh:
            (self.nodes.replace if changes.fresh else self.nodes.put)(changes.nodes)
            self._count_gpus()
        removed = _removed(changes.events)
        if removed and not changes.fresh:
            self.nodes.drop(removed)
            self._count_gpus()
        if changes.events or changes.fresh:
            self._take_events(changes.events, changes.fresh)
        self.history.put(changes.seconds, changes.minutes)
        if changes.seconds:
            self._controller_alarms = changes.seconds[-1].alarms
        if changes.fresh:
            self.find_alarms()

    def take_places(self, places: Iterable[QueuePlace]) -> None:
        """Store the places of the waiting jobs in the queue, and sort the list of jobs by them."""
        found = {each.job: each for each in places}
        if found != self.places:
            self.places = found
            self.jobs.rearrange()

    def _order_of(self, job: JobView) -> tuple[float, ...]:
        return job_order(job, self.places.get(job.id))

    def find_alarms(self) -> None:
        """Compute the list of alarms from the present state. The application calls this once a second."""
        now = self.now()
        self._failed = {job: at for job, at in self._failed.items() if at > now - FAILED_FOR_S}
        self.alarms = alarms(
            self.nodes.rows.values(),
            self.running,
            self._failed,
            self._waiting_long,
            now,
            len(self._at_quota),
            self._controller_alarms,
        )

    def _greet(self, cluster: ClusterView) -> None:
        self.name = cluster.name
        self._skew = cluster.now - self._clock()
        self._waiting_long = cluster.wait_alarms

    def _start_over(self) -> None:
        self.counts.clear()
        self.running.clear()
        self.waiting.clear()
        self._failed.clear()
        self._at_quota.clear()
        self._ended.clear()
        self.last_ends.clear()
        self._recent.clear()
        self.jobs.rows.clear()

    def _count_jobs(self, jobs: Iterable[JobView]) -> None:
        for job in jobs:
            before = self.jobs.rows.get(job.id)
            if before is not None:
                self.counts[before.state] -= 1
            self.counts[job.state] += 1
            if job.state.terminal and (before is None or not before.state.terminal):
                self._ended.append(job.id)
                self.last_ends.append(job.id)
                if job.state is JobState.FAILED:
                    self._failed[job.id] = job.ended_at or self.now()
            if job.held and not job.state.terminal:
                self.running[job.id] = job
            else:
                self.running.pop(job.id, None)
            if job.state is JobState.QUEUED:
                self.waiting[job.id] = job
            else:
                self.waiting.pop(job.id, None)
            if job.state is JobState.QUEUED and job.reason is Reason.QUOTA:
                self._at_quota.add(job.id)
            else:
                self._at_quota.discard(job.id)

    def _trim_jobs(self) -> None:
        if len(self._ended) <= 2 * KEPT_ENDED:
            return
        old = [self._ended.popleft() for _ in range(len(self._ended) - KEPT_ENDED)]
        self.counts.subtract(self.jobs.rows[job].state for job in old)
        self.jobs.drop(old)

    def _count_gpus(self) -> None:
        gpus = [gpu for node in self.nodes.rows.values() for gpu in node.gpus]
        self.gpus = len(gpus)
        self.gpus_used = sum(WHOLE_GPU - gpu.free_milli for gpu in gpus) / WHOLE_GPU

    def _take_events(self, events: Iterable[EventView], fresh: bool) -> None:
        (self.events.replace if fresh else self.events.put)(events)
        self._recent.extend(event.seq for event in events)
        self.events.drop([self._recent.popleft() for _ in range(len(self._recent) - KEPT_EVENTS)])


def _removed(events: Iterable[EventView]) -> set[str]:
    last = {event.node: event.kind for event in events if event.kind in ("NodeAdded", "NodeRemoved")}
    return {node for node, kind in last.items() if node is not None and kind == "NodeRemoved"}
