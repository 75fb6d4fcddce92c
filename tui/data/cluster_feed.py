"""Receives the state of the cluster: a thread loads the whole state once, and then follows the event stream.

The thread receives all data and parses all JSON. The screen takes the collected changes when it has finished
its last update. If a row (a job, node or other object) has changed several times, the screen gets only the
newest version of the row.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

from tui.pulse.history import SECONDS_KEPT
from wire.api.jobs import JobList, JobView
from wire.api.nodes import NodeList, NodeView
from wire.api.service.cluster import ClusterView, EventList, EventView, PulseSample, PulseView, StreamBatch
from wire.http.client import Refused, Unreachable
from wire.names import JobState

KEPT_EVENTS: Final = 2_000
KEPT_ENDED: Final = 20_000
"""At most this number of ended jobs is loaded: those that are among the newest jobs of the cluster."""

FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 15.0

_ACTIVE: Final = tuple(state for state in JobState if not state.terminal)
_ENDED: Final = tuple(state for state in JobState if state.terminal)


@dataclass(frozen=True)
class ConnectionStatus:
    """The state of the connection to the controller. `last_message_at` is the time at which the last message
    of the controller arrived, and `retry_at` the time of the next attempt to connect, both in seconds since
    1970.
    """

    state: Literal["loading", "live", "lost"] = "loading"
    last_message_at: float = 0.0
    note: str = ""
    retry_at: float = 0.0


@dataclass(frozen=True)
class Changes:
    """Changes of the cluster since the last call of `ClusterFeed.take`. If `fresh` is true, the changes
    contain the whole state of the cluster and replace all earlier data.
    """

    connection: ConnectionStatus = ConnectionStatus()
    fresh: bool = False
    cluster: ClusterView | None = None
    jobs: tuple[JobView, ...] = ()
    nodes: tuple[NodeView, ...] = ()
    events: tuple[EventView, ...] = ()
    seconds: tuple[PulseSample, ...] = ()
    """Samples of the cluster's figures, one for each second."""
    minutes: tuple[PulseSample, ...] = ()
    """Samples of the cluster's figures, one for each minute."""


class ClusterFeed(Protocol):
    """A source of changes of the cluster: the controller, or a recording in tests."""

    def start(self, wake: Callable[[], None]) -> None:
        """Start collecting changes. `wake` is called, on any thread, when there are changes to take."""

    def take(self) -> Changes:
        """Return all changes since the last call."""

    def stop(self) -> None:
        """Stop collecting changes."""


class ClusterSource(Protocol):
    """The methods of the API client (wire.http.client.Client) that the feed uses."""

    def cluster(self) -> ClusterView: ...
    def nodes(self) -> NodeList: ...
    def jobs(self, *, states: Iterable[JobState] = (), after: int = 0, limit: int = 1000) -> JobList: ...
    def events(self, *, after: int = 0, limit: int = 1000) -> EventList: ...
    def pulse(self, ring: str = "minutes", after: int = 0) -> PulseView: ...
    def stream(
        self, after: int | None = None, *, rows: bool = True, pulse: bool = False
    ) -> Iterator[StreamBatch | None]: ...
    def close(self) -> None: ...


class PendingChanges:
    """Collects changes until the screen takes them. If a row changes several times, only the newest version
    of the row is kept.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake: Callable[[], None] = lambda: None
        self._quiet = True
        self._connection = ConnectionStatus()
        self._fresh = False
        self._cluster: ClusterView | None = None
        self._jobs: dict[int, JobView] = {}
        self._nodes: dict[str, NodeView] = {}
        self._events: list[EventView] = []
        self._seconds: list[PulseSample] = []
        self._minutes: list[PulseSample] = []

    def on_wake(self, wake: Callable[[], None]) -> None:
        """Set the function that is called when changes arrive. After a call, it is not called again before
        the next `take`.
        """
        self._wake = wake

    def put(self, changes: Changes) -> None:
        """Add changes. A changed row replaces an earlier version of the same row."""
        with self._lock:
            if changes.fresh:
                self._empty()
                self._fresh = True
            self._connection = changes.connection
            self._cluster = changes.cluster or self._cluster
            self._jobs.update((job.id, job) for job in changes.jobs)
            self._nodes.update((node.name, node) for node in changes.nodes)
            self._events.extend(changes.events)
            del self._events[:-KEPT_EVENTS]
            self._seconds.extend(changes.seconds)
            del self._seconds[:-SECONDS_KEPT]
            self._minutes = list(changes.minutes) or self._minutes
            wake, self._quiet = self._quiet, False
        if wake:
            self._wake()

    def take(self) -> Changes:
        """Return all collected changes, and forget them. The wake function (see `on_wake`) is called again
        when the next change arrives.
        """
        with self._lock:
            taken = Changes(
                self._connection,
                self._fresh,
                self._cluster,
                tuple(self._jobs.values()),
                tuple(self._nodes.values()),
                tuple(self._events),
                tuple(self._seconds),
                tuple(self._minutes),
            )
            self._empty()
            self._quiet = True
        return taken

    @property
    def quiet(self) -> bool:
        """Return True if no changes have arrived since the last `take`."""
        return self._quiet

    def _empty(self) -> None:
        self._fresh, self._cluster = False, None
        self._jobs, self._nodes, self._events = {}, {}, []
        self._seconds, self._minutes = [], []


class LiveFeed:
    """Receives changes from a controller. After a lost connection, the feed tries to reconnect forever, and
    continues after the last received event.
    """

    def __init__(self, connect: Callable[[], ClusterSource], clock: Callable[[], float] = time.time) -> None:
        self._connect = connect
        self._clock = clock
        self._basket = PendingChanges()
        self._over = threading.Event()
        self._source: ClusterSource | None = None
        self._connection = ConnectionStatus()
        self._seq: int | None = None
        self._failures = 0

    def start(self, wake: Callable[[], None]) -> None:
        self._basket.on_wake(wake)
        threading.Thread(target=self._run, name="feed", daemon=True).start()

    def take(self) -> Changes:
        return self._basket.take()

    def stop(self) -> None:
        """Stop the thread, even while the thread waits for the controller."""
        self._over.set()
        if self._source is not None:
            self._source.close()

    def _run(self) -> None:
        while not self._over.is_set():
            note = "the controller ended the stream"
            try:
                self._source = self._connect()
                self._catch_up(self._source)
                self._add_changes(_history(self._source))
                self._follow(self._source)
            except Unreachable as error:
                note = error.why
            except Refused as error:
                # Load the whole state again, because the controller may have deleted the event after which
                # the stream should continue.
                note, self._seq = error.problem.message, None
            if not self._over.is_set():
                self._over.wait(self._lost(note))

    def _lost(self, note: str) -> float:
        """Report the lost connection to the screen. Return the seconds to wait before the next attempt to
        connect. The wait becomes longer with each attempt. A part of it is random, so that many clients do
        not reconnect at the same moment.
        """
        self._failures += 1
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**self._failures)
        pause = random.uniform(longest / 2, longest)  # noqa: S311 - spreading load, not guarding secrets
        self._connection = replace(self._connection, state="lost", note=note, retry_at=self._clock() + pause)
        self._basket.put(Changes(self._connection))
        return pause

    def _add_changes(self, changes: Changes, note: str = "") -> None:
        state: Literal["loading", "live"] = "loading" if note else "live"
        self._connection = ConnectionStatus(state, self._clock(), note)
        self._basket.put(replace(changes, connection=self._connection))

    def _catch_up(self, source: ClusterSource) -> None:
        """Load the whole state of the cluster, unless the event stream can continue after the last received
        event.
        """
        cluster = source.cluster()
        if self._seq is not None and cluster.seq >= self._seq:
            return
        if self._seq is None and not self._failures:
            for part in self._snapshot(source, cluster):
                self._add_changes(part, note="loading")
        else:
            self._add_changes(_joined(self._snapshot(source, cluster)), note="loading")
        self._seq = cluster.seq

    def _snapshot(self, source: ClusterSource, cluster: ClusterView) -> Iterator[Changes]:
        """Yield the whole state of the cluster in parts. The first parts contain the nodes and the active
        jobs.

        Afterwards the caller starts the event stream after `cluster.seq`, the number of the newest journal
        entry before the first part was loaded. So changes that happen while the parts are loaded are not
        lost.
        """
        yield Changes(fresh=True, cluster=cluster, nodes=source.nodes().nodes)
        yield from (Changes(jobs=page.jobs) for page in _pages(source, _ACTIVE, 0))
        newest = max(0, sum(cluster.jobs.values()) - KEPT_ENDED)
        yield from (Changes(jobs=page.jobs) for page in _pages(source, _ENDED, newest))
        yield Changes(events=source.events(after=max(0, cluster.seq - 500)).events)

    def _follow(self, source: ClusterSource) -> None:
        seq = self._seq or 0
        for batch in source.stream(seq, pulse=True):
            self._failures = 0
            if self._over.is_set():
                return
            if batch is None:
                self._add_changes(Changes())
                continue
            unseen = tuple(event for event in batch.events if event.seq > seq)
            sample = () if batch.pulse is None else (batch.pulse,)
            self._add_changes(Changes(jobs=batch.jobs, nodes=batch.nodes, events=unseen, seconds=sample))
            self._seq = seq = max(seq, batch.seq)


def _history(source: ClusterSource) -> Changes:
    """Return the samples of the cluster's figures that the controller keeps. Return no samples if the
    controller has an earlier version without samples.
    """
    try:
        return Changes(seconds=source.pulse("seconds").samples, minutes=source.pulse("minutes").samples)
    except Refused:
        return Changes()


def _pages(source: ClusterSource, states: tuple[JobState, ...], after: int) -> Iterator[JobList]:
    following: int | None = after
    while following is not None:
        page = source.jobs(states=states, after=following)
        yield page
        following = page.next


def _joined(parts: Iterable[Changes]) -> Changes:
    basket = PendingChanges()
    for part in parts:
        basket.put(part)
    return basket.take()
