"""Measures the terminal UI and prints figures; asserts none: `python -m tests.tui.measure`.

Ten thousand jobs, then 500 rows a second change, decoded from JSON in the feed's thread as they would come
from a controller; measured in a real pty (SIZE, 120x40): bytes after a key, stalls of the loop, CPU, memory.
All jobs are younger than an hour, so that each run time on the screen changes every second.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import random
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from cli.spec.spec_to_flags import command_of
from tests.limits import PATIENCE_S
from tests.tui.recorded import RecordedClient, cluster, events, job, nodes
from tui.app import CorralApp
from tui.app_interface import CliFunctions
from tui.data.cluster_feed import LiveFeed
from wire.api.jobs import JobList, JobView
from wire.api.nodes import NodeList
from wire.api.service.cluster import ClusterView, EventList, PulseView, StreamBatch
from wire.codec import decode, dumps, encode
from wire.names import JobState

JOBS = int(os.environ.get("JOBS", "10000"))
ROWS_A_SECOND = int(os.environ.get("ROWS", "500"))
KEYS = 150
BATCHES = 500
BEGAN = time.time()
SIZE = tuple(int(each) for each in os.environ.get("SIZE", "120x40").split("x"))
STATES = (JobState.QUEUED, JobState.QUEUED, JobState.RUNNING, JobState.COMPLETED, JobState.FAILED)


class Busy:
    """A controller with many jobs, of which some change all the time once the file `busy` exists."""

    def __init__(self, busy: str) -> None:
        self._busy = busy
        states = [STATES[number % 5] for number in range(JOBS + 1)]
        self._pages = {
            terminal: [
                dumps([encode(_recent(at, states[at])) for at in part if states[at].terminal is terminal])
                for part in _parts(JOBS, 1000)
            ]
            for terminal in (False, True)
        }

        dice = random.Random(3)
        self._batches = [
            dumps(
                {
                    "seq": 0,
                    "events": [encode(events()[0])],
                    "jobs": [
                        encode(_recent(dice.randint(1, JOBS), dice.choice(STATES)))
                        for _ in range(ROWS_A_SECOND // 50)
                    ],
                }
            )
            for _ in range(BATCHES)
        ]
        """The messages of the event stream, encoded before, because a controller is another process."""

    def cluster(self) -> ClusterView:
        return replace(cluster("measured"), now=time.time(), jobs={"all": JOBS})

    def nodes(self) -> NodeList:
        return NodeList(nodes(), 1000)

    def jobs(self, *, states: Iterable[JobState] = (), after: int = 0, limit: int = 1000) -> JobList:
        pages, at = self._pages[next(iter(states)).terminal], after // 1000
        body = {"jobs": json.loads(pages[at]), "seq": 1000, "total": JOBS}
        return replace(decode(JobList, body), next=(at + 1) * 1000 if at + 1 < len(pages) else None)

    def events(self, *, after: int = 0, limit: int = 1000) -> EventList:
        return EventList(events(), 1000)

    def pulse(self, ring: str = "minutes", after: int = 0) -> PulseView:
        return PulseView((), 1.0, 600.0, 0.0, time.time())

    def stream(
        self, after: int | None = None, *, rows: bool = True, pulse: bool = False
    ) -> Iterator[StreamBatch | None]:
        seq, beat = after or 0, 0
        while True:
            time.sleep(0.02)
            beat += 1
            if os.path.exists(self._busy):
                seq += 1
                body = json.loads(self._batches[seq % BATCHES])
                body["seq"] = body["events"][0]["seq"] = seq
                yield decode(StreamBatch, body)
            elif beat % 250 == 0:
                yield None

    def close(self) -> None:
        pass


def _recent(number: int, state: JobState) -> JobView:
    """A job that was submitted and started within the last hour before the program began."""
    at = BEGAN - number * 7 % 3_000
    started = None if state is JobState.QUEUED else at
    return job(number, state, submitted_at=at, started_at=started, ended_at=BEGAN if state.terminal else None)


def _parts(number: int, size: int) -> Iterator[range]:
    return (range(low, min(low + size, number + 1)) for low in range(1, number + 1, size))


class Watched(CorralApp):
    """Records the delay of its event loop while the file `watch` exists."""

    async def watch(self, figures: str) -> None:
        while True:
            late = []
            while os.path.exists(f"{figures}.watch"):
                asked = time.perf_counter()
                await asyncio.sleep(0.005)
                late.append((time.perf_counter() - asked - 0.005) * 1000)
            if late:
                with open(figures, "w") as file:
                    json.dump({"late": sorted(late), "jobs": len(self.model.jobs.rows)}, file)
                os.rename(figures, f"{figures}.done")
            await asyncio.sleep(0.3)

    def on_mount(self) -> None:
        super().on_mount()
        self.run_worker(self.watch(os.environ["FIGURES"]))


def child() -> None:
    figures = os.environ["FIGURES"]
    busy = Busy(f"{figures}.busy")
    print("begin", flush=True)
    cli = CliFunctions(command_of, lambda spec: spec)
    Watched(LiveFeed(lambda: busy), lambda: RecordedClient([]), cli, first_view="queue").run()


def parent(figures: str) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(FIGURES=figures, TERM="xterm-256color", COLORTERM="truecolor")
        os.execv(sys.executable, [sys.executable, "-m", "tests.tui.measure", "child"])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
    try:
        _until(terminal, b"begin")
        began = time.monotonic()
        _until(terminal, "● running".encode())
        print(f"first rows {time.monotonic() - began:.2f} s after the program began to run")
        _until(terminal, f"{JOBS:,}".encode())
        print(f"all {JOBS:,} jobs {time.monotonic() - began:.2f} s after")
        _drain(terminal, 4.0)
        _tell("quiet", terminal, pid, figures)
        for view in "023456781":
            os.write(terminal, view.encode())
            _drain(terminal, 3.0)
            print(f"quiet: view {view}: {_drain(terminal, 5.0) / 5_000:.1f} kB/s to the terminal")
        open(f"{figures}.busy", "w").close()
        _drain(terminal, 2.0)
        _tell(f"{ROWS_A_SECOND} rows/s", terminal, pid, figures)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _tell(what: str, terminal: int, pid: int, figures: str) -> None:
    for name, keys in (("cursor", b"jk"), ("page", b"\x04\x15")):
        took = sorted(_key(terminal, keys[at % 2 : at % 2 + 1]) * 1000 for at in range(KEYS))
        p50, p95 = took[KEYS // 2], took[KEYS * 95 // 100]
        print(f"{what}: {name} key to first byte p50 {p50:.1f} ms, p95 {p95:.1f} ms")
    used, began = _cpu(pid), time.monotonic()
    sent = _drain(terminal, 10.0)
    share = (_cpu(pid) - used) / (time.monotonic() - began)
    print(f"{what}: CPU {share:.1%}, {sent / 10_000:.1f} kB/s to the terminal, {_rss(pid):.0f} MB")
    open(f"{figures}.watch", "w").close()
    _drain(terminal, 10.0)
    os.unlink(f"{figures}.watch")
    while not os.path.exists(f"{figures}.done"):
        _drain(terminal, 0.1)
    with open(f"{figures}.done") as file:
        said = json.load(file)
    os.unlink(f"{figures}.done")
    late = said["late"]
    p99 = late[len(late) * 99 // 100]
    print(f"{what}: loop late p99 {p99:.1f} ms, at most {late[-1]:.1f} ms, with {said['jobs']:,} jobs")


def _cpu(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        parts = file.read().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def _rss(pid: int) -> float:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _key(terminal: int, key: bytes) -> float:
    _drain(terminal, random.uniform(0.05, 0.09))
    began = time.perf_counter()
    os.write(terminal, key)
    select.select([terminal], [], [], 5)
    took = time.perf_counter() - began
    os.read(terminal, 1 << 20)
    return took


def _until(terminal: int, sign: bytes) -> None:
    seen, patience = b"", time.monotonic() + PATIENCE_S
    while sign not in seen:
        if not select.select([terminal], [], [], patience - time.monotonic())[0]:
            raise TimeoutError(sign)
        seen += os.read(terminal, 65536)


def _drain(terminal: int, seconds: float) -> int:
    """Read output for this many seconds. Returns the number of bytes."""
    until, count = time.monotonic() + seconds, 0
    while (left := until - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            count += len(os.read(terminal, 1 << 20))
    return count


if __name__ == "__main__":
    if sys.argv[1:] == ["child"]:
        child()
    else:
        with tempfile.TemporaryDirectory() as place:
            parent(os.path.join(place, "figures"))
