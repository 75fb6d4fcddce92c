"""How the cluster reaches the screen: a thread loads a snapshot, then follows the stream for ever.

Everything slow (network, JSON) happens in that thread. The screen takes what has gathered, at its own pace:
of a row that changed ten times it sees the last.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

from wire.api.cluster import ClusterView, EventList, EventView, StreamBatch
from wire.api.jobs import JobList, JobView
from wire.api.nodes import NodeList, NodeView
from wire.client import Refused, Unreachable
from wire.words import JobState

KEPT_EVENTS: Final = 2_000
KEPT_ENDED: Final = 20_000
"""Ended jobs shown are those among the newest so many; the journal keeps the rest."""

FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 15.0

_ACTIVE: Final = tuple(state for state in JobState if not state.terminal)
_ENDED: Final = tuple(state for state in JobState if state.terminal)


@dataclass(frozen=True)
class Connection:
    """How we stand with the controller; `heard` is when it last said anything."""

    state: Literal["loading", "live", "lost"] = "loading"
    heard: float = 0.0
    note: str = ""
    retry_at: float = 0.0


@dataclass(frozen=True)
class Changes:
    """What happened since the last look; `fresh` means what was known before is void."""

    connection: Connection = Connection()
    fresh: bool = False
    cluster: ClusterView | None = None
    jobs: tuple[JobView, ...] = ()
    nodes: tuple[NodeView, ...] = ()
    events: tuple[EventView, ...] = ()


class Feed(Protocol):
    """Where changes come from: the live controller, or a recording in the tests."""

    def start(self, wake: Callable[[], None]) -> None:
        """Begin; `wake` is called, from any thread, when there is something to take again."""

    def take(self) -> Changes:
        """Everything gathered since the last call."""

    def stop(self) -> None:
        """End; nothing is delivered any more."""


class Source(Protocol):
    """The questions a feed asks of wire.client.Client."""

    def cluster(self) -> ClusterView: ...
    def nodes(self) -> NodeList: ...
    def jobs(self, *, states: Iterable[JobState] = (), after: int = 0, limit: int = 1000) -> JobList: ...
    def events(self, *, after: int = 0, limit: int = 1000) -> EventList: ...
    def stream(self, after: int | None = None) -> Iterator[StreamBatch | None]: ...
    def close(self) -> None: ...


class Basket:
    """Changes gather here, newest row wins, until somebody takes them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake: Callable[[], None] = lambda: None
        self._quiet = True
        self._connection = Connection()
        self._fresh = False
        self._cluster: ClusterView | None = None
        self._jobs: dict[int, JobView] = {}
        self._nodes: dict[str, NodeView] = {}
        self._events: list[EventView] = []

    def on_wake(self, wake: Callable[[], None]) -> None:
        """Whom to tell when the empty basket has something again."""
        self._wake = wake

    def put(self, changes: Changes) -> None:
        """Add changes, over older ones of the same rows."""
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
            wake, self._quiet = self._quiet, False
        if wake:
            self._wake()

    def take(self) -> Changes:
        """Everything in the basket; the next change wakes again."""
        with self._lock:
            taken = Changes(
                self._connection,
                self._fresh,
                self._cluster,
                tuple(self._jobs.values()),
                tuple(self._nodes.values()),
                tuple(self._events),
            )
            self._empty()
            self._quiet = True
        return taken

    @property
    def quiet(self) -> bool:
        """Nothing has come since the last look."""
        return self._quiet

    def _empty(self) -> None:
        self._fresh, self._cluster = False, None
        self._jobs, self._nodes, self._events = {}, {}, []


class LiveFeed:
    """A feed from a controller; a lost connection is tried again for ever, and goes on where it broke."""

    def __init__(self, connect: Callable[[], Source], clock: Callable[[], float] = time.time) -> None:
        self._connect = connect
        self._clock = clock
        self._basket = Basket()
        self._over = threading.Event()
        self._source: Source | None = None
        self._connection = Connection()
        self._seq: int | None = None
        self._failures = 0

    def start(self, wake: Callable[[], None]) -> None:
        """Begin to load and follow."""
        self._basket.on_wake(wake)
        threading.Thread(target=self._run, name="feed", daemon=True).start()

    def take(self) -> Changes:
        """Everything gathered since the last call."""
        return self._basket.take()

    def stop(self) -> None:
        """End, also while waiting for the controller."""
        self._over.set()
        if self._source is not None:
            self._source.close()

    def _run(self) -> None:
        while not self._over.is_set():
            note = "the controller ended the stream"
            try:
                self._source = self._connect()
                self._catch_up(self._source)
                self._hear(Changes())
                self._follow(self._source)
            except Unreachable as error:
                note = error.why
            except Refused as error:
                # What we asked to go on from is not there (any more): begin anew.
                note, self._seq = error.problem.message, None
            if not self._over.is_set():
                self._over.wait(self._lost(note))

    def _lost(self, note: str) -> float:
        """Tell the screen, and say how long to wait: longer each time, and never all clients at once."""
        self._failures += 1
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**self._failures)
        pause = random.uniform(longest / 2, longest)  # noqa: S311 - spreading load, not guarding secrets
        self._connection = replace(self._connection, state="lost", note=note, retry_at=self._clock() + pause)
        self._basket.put(Changes(self._connection))
        return pause

    def _hear(self, changes: Changes, note: str = "") -> None:
        state: Literal["loading", "live"] = "loading" if note else "live"
        self._connection = Connection(state, self._clock(), note)
        self._basket.put(replace(changes, connection=self._connection))

    def _catch_up(self, source: Source) -> None:
        """Load a snapshot, unless the stream can go on from where it broke."""
        cluster = source.cluster()
        if self._seq is not None and cluster.seq >= self._seq:
            return
        if self._seq is None and not self._failures:
            for part in self._snapshot(source, cluster):
                self._hear(part, note="loading")
        else:
            self._hear(_joined(self._snapshot(source, cluster)), note="loading")
        self._seq = cluster.seq

    def _snapshot(self, source: Source, cluster: ClusterView) -> Iterator[Changes]:
        """The cluster in pieces, the nodes and what lives first.

        Whatever changes meanwhile is told again by the stream, which goes on from `cluster.seq`.
        """
        yield Changes(fresh=True, cluster=cluster, nodes=source.nodes().nodes)
        yield from (Changes(jobs=page.jobs) for page in _pages(source, _ACTIVE, 0))
        newest = max(0, sum(cluster.jobs.values()) - KEPT_ENDED)
        yield from (Changes(jobs=page.jobs) for page in _pages(source, _ENDED, newest))
        yield Changes(events=source.events(after=max(0, cluster.seq - 500)).events)

    def _follow(self, source: Source) -> None:
        seq = self._seq or 0
        for batch in source.stream(seq):
            self._failures = 0
            if self._over.is_set():
                return
            if batch is None:
                self._hear(Changes())
                continue
            unseen = tuple(event for event in batch.events if event.seq > seq)
            self._hear(Changes(jobs=batch.jobs, nodes=batch.nodes, events=unseen))
            self._seq = seq = max(seq, batch.seq)


def _pages(source: Source, states: tuple[JobState, ...], after: int) -> Iterator[JobList]:
    following: int | None = after
    while following is not None:
        page = source.jobs(states=states, after=following)
        yield page
        following = page.next


def _joined(parts: Iterable[Changes]) -> Changes:
    """A whole snapshot at once, so that the screen never shows half of two."""
    basket = Basket()
    for part in parts:
        basket.put(part)
    return basket.take()
