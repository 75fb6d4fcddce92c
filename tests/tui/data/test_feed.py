"""The feed with a source that fails, stalls and recovers."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest

from tests.limits import PATIENCE_S
from tests.tui.recorded import NOW, cluster, events, job, jobs, nodes
from tui.data import cluster_feed
from tui.data.cluster_feed import Changes, ConnectionStatus, LiveFeed
from wire.api.jobs import JobList
from wire.api.nodes import NodeList
from wire.api.problem import Problem
from wire.api.service.cluster import ClusterView, EventList, PulseSample, PulseView, StreamBatch
from wire.http.client import Refused, Unreachable
from wire.names import JobState

GONE = Unreachable("unix:///gone", "no program listens there")


class Controller:
    """The journal of a controller and its stream clients; a test can make it fail."""

    def __init__(self) -> None:
        self.rows = {row.id: row for row in jobs()}
        self.seq = 1000
        self.broken: Exception | None = None
        self.asked: list[str] = []
        self.journal: list[StreamBatch] = []
        self.lines: list[queue.SimpleQueue[StreamBatch | Exception | None]] = []
        self.listened: list[int] = []
        self.lock = threading.Lock()
        self.samples: tuple[PulseSample, ...] = ()

    def commit(self, number: int, state: JobState) -> None:
        with self.lock:
            self.seq += 1
            self.rows[number] = replace(job(number, state))
            batch = StreamBatch(self.seq, (replace(events()[0], seq=self.seq),), (self.rows[number],))
            self.journal.append(batch)
            for line in self.lines:
                line.put(batch)

    def tell(self, what: StreamBatch | Exception | None) -> None:
        with self.lock:
            for line in self.lines:
                line.put(what)


class Source:
    """One connection to it."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._line: queue.SimpleQueue[StreamBatch | Exception | None] = queue.SimpleQueue()

    def _ask(self, what: str) -> Controller:
        if self._controller.broken:
            raise self._controller.broken
        self._controller.asked.append(what)
        return self._controller

    def cluster(self) -> ClusterView:
        return replace(cluster(), seq=self._ask("cluster").seq, jobs={"all": len(self._controller.rows)})

    def nodes(self) -> NodeList:
        return NodeList(nodes(), self._ask("nodes").seq)

    def jobs(self, *, states: Iterable[JobState] = (), after: int = 0, limit: int = 1000) -> JobList:
        there = self._ask("jobs")
        wanted = set(states)
        rows = sorted(
            (row for row in there.rows.values() if row.state in wanted and row.id > after), key=lambda r: r.id
        )
        page = tuple(rows[:10])
        return JobList(page, there.seq, len(rows), page[-1].id if len(rows) > 10 else None)

    def events(self, *, after: int = 0, limit: int = 1000) -> EventList:
        return EventList(events(), self._ask("events").seq)

    def pulse(self, ring: str = "minutes", after: int = 0) -> PulseView:
        self._ask("pulse")
        return PulseView(self._controller.samples, 60.0, 86_400.0, NOW, NOW)

    def stream(
        self, after: int | None = None, *, rows: bool = True, pulse: bool = False
    ) -> Iterator[StreamBatch | None]:
        there = self._ask("stream")
        with there.lock:
            there.listened.append(after or 0)
            for batch in there.journal:
                if batch.seq > (after or 0):
                    self._line.put(batch)
            there.lines.append(self._line)
        try:
            while True:
                said = self._line.get(timeout=PATIENCE_S)
                if isinstance(said, Exception):
                    raise said
                yield said
        finally:
            with there.lock:
                there.lines.remove(self._line)

    def close(self) -> None:
        self._line.put(GONE)


class Reader:
    """Reads a feed whenever the feed has news, and applies them."""

    def __init__(self, live: LiveFeed) -> None:
        self.live = live
        self.rows: dict[int, object] = {}
        self.seen: list[int] = []
        self.connections: list[ConnectionStatus] = []
        self.fresh = 0
        self.takes = 0
        self._woken = threading.Semaphore(0)
        live.start(self._woken.release)

    def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            assert self._woken.acquire(timeout=PATIENCE_S), "the feed fell silent"
            self.take(self.live.take())

    def take(self, changes: Changes) -> None:
        self.takes += 1
        if changes.fresh:
            self.fresh += 1
            self.rows.clear()
            self.seen.clear()
        self.rows.update((row.id, row) for row in changes.jobs)
        self.seen += [event.seq for event in changes.events if event.seq > 1000]
        self.connections.append(changes.connection)

    @property
    def state(self) -> str:
        return self.connections[-1].state if self.connections else ""


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Controller:
    monkeypatch.setattr(cluster_feed, "FIRST_PAUSE_S", 0.002)
    monkeypatch.setattr(cluster_feed, "LONGEST_PAUSE_S", 0.01)
    return Controller()


@pytest.fixture
def reader(controller: Controller) -> Iterator[Reader]:
    live = LiveFeed(lambda: Source(controller), lambda: NOW)
    yield Reader(live)
    live.stop()


def test_feed_loads_everything_and_follows(controller: Controller, reader: Reader) -> None:
    reader.until(lambda: reader.state == "live")
    assert reader.rows == controller.rows
    assert controller.asked.count("jobs") > 2
    controller.commit(50, JobState.QUEUED)
    reader.until(lambda: 50 in reader.rows)
    assert reader.rows == controller.rows


def test_feed_continues_after_a_loss_without_gaps_or_duplicates(
    controller: Controller, reader: Reader
) -> None:
    reader.until(lambda: controller.lines)
    controller.commit(50, JobState.QUEUED)
    reader.until(lambda: 50 in reader.rows)
    controller.broken = GONE
    controller.tell(GONE)
    reader.until(lambda: reader.state == "lost" and len(reader.connections) > 5)
    assert reader.connections[-1].note == "no program listens there"
    for number in range(51, 60):
        controller.commit(number, JobState.RUNNING)
    assert reader.rows.keys() >= {1, 50}, "the last data stays"
    controller.broken = None
    reader.until(lambda: 59 in reader.rows)
    controller.commit(60, JobState.QUEUED)
    reader.until(lambda: 60 in reader.rows)
    assert reader.rows == controller.rows
    assert reader.seen == list(range(1001, 1012))
    assert (reader.fresh, controller.listened) == (1, [1000, 1001])


def test_repeated_batches_are_applied_once(controller: Controller, reader: Reader) -> None:
    reader.until(lambda: controller.lines)
    controller.commit(50, JobState.QUEUED)
    controller.tell(controller.journal[-1])
    controller.commit(51, JobState.QUEUED)
    reader.until(lambda: 51 in reader.rows)
    assert reader.seen == [1001, 1002]


def test_feed_of_another_journal_is_loaded_from_the_start(controller: Controller, reader: Reader) -> None:
    reader.until(lambda: controller.lines)
    controller.rows = {7: job(7)}
    controller.seq = 3
    controller.tell(GONE)
    reader.until(lambda: reader.fresh == 2)
    assert reader.rows == controller.rows


def test_refused_position_reloads_everything(controller: Controller, reader: Reader) -> None:
    reader.until(lambda: controller.lines)
    controller.tell(Refused(410, Problem("gone", "the journal no longer goes back so far")))
    reader.until(lambda: reader.fresh == 2)
    reader.until(lambda: reader.state == "live")
    assert reader.rows == controller.rows


def test_heartbeats_refresh_the_status_only(controller: Controller, reader: Reader) -> None:
    reader.until(lambda: controller.lines and reader.state == "live")
    before = len(reader.connections)
    controller.tell(None)
    reader.until(lambda: len(reader.connections) > before)
    assert reader.connections[-1] == ConnectionStatus("live", NOW)


def test_screen_gets_the_last_of_many_changes_of_a_row(controller: Controller, reader: Reader) -> None:
    reader.until(lambda: controller.lines and reader.state == "live")
    takes = reader.takes
    for state in (JobState.QUEUED, JobState.SCHEDULED, JobState.RUNNING, JobState.COMPLETED) * 50:
        controller.commit(50, state)
    controller.commit(51, JobState.QUEUED)
    reader.until(lambda: 51 in reader.rows)
    assert reader.rows[50] == controller.rows[50]
    assert reader.takes - takes < 200
    assert reader.seen == list(range(1001, 1202))


def test_feed_retries_with_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_feed.random, "uniform", lambda low, high: high)
    live = LiveFeed(lambda: Source(Controller()), lambda: NOW)
    pauses = [live._lost("gone") for _ in range(40)]
    assert pauses == sorted(pauses)
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]
    assert pauses[-1] == cluster_feed.LONGEST_PAUSE_S


def test_stop_ends_the_feed_thread_while_it_waits(controller: Controller) -> None:
    controller.broken = GONE
    live = LiveFeed(lambda: Source(controller), lambda: NOW)
    reader = Reader(live)
    reader.until(lambda: reader.state == "lost")
    live.stop()
    for thread in threading.enumerate():
        if thread.name == "feed":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
