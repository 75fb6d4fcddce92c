"""Measures the whole system: a real controller, a real agent and real job processes, with every change synced
to disk.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.core import timed
from benchmarks.table import heading, row, spread
from wire.codec import dumps, encode
from wire.http.client import Client, Unreachable
from wire.job.spec import JobSpec
from wire.names import NodeState

TRUE = JobSpec(command=("/bin/true",))
CONFIG = """
[controller]
state_dir = "{home}"
socket = "{home}/corral.sock"
[nodes.host]
gpus = "simulated:8xH100"
cpus = 64
memory = "512G"
run_as_self = true
"""


@dataclass(frozen=True)
class System:
    """A running controller with one simulated host."""

    url: str
    pid: int

    def client(self) -> Client:
        """Return a new client of the controller."""
        return Client(self.url)

    def cpu_s(self) -> float:
        """Return the CPU seconds that the controller has used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def system(more: str = "") -> Iterator[System]:
    """Context manager that starts a controller in a temporary directory, and waits until its node is up.
    `more` is text that is added to the controller's scheduler.toml.
    """
    with tempfile.TemporaryDirectory(prefix="corral-bench-") as home:
        config = Path(home, "scheduler.toml")
        config.write_text(CONFIG.format(home=home) + more)
        with (
            open(Path(home, "log"), "wb") as log,
            subprocess.Popen(
                [sys.executable, "-m", "controller", "--config", str(config)], stdout=log, stderr=log
            ) as controller,
        ):
            try:
                made = System(f"unix://{home}/corral.sock", controller.pid)
                _await_node(made)
                yield made
            finally:
                controller.send_signal(signal.SIGTERM)
                controller.wait(30)


def _await_node(made: System) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(Unreachable), contextlib.closing(made.client()) as client:
            if any(node.state is NodeState.UP for node in client.nodes().nodes):
                return
        time.sleep(0.05)
    raise SystemExit("benchmarks: the controller did not start in time")


def hammer(made: System, clients: int, each: int, spec: JobSpec) -> float:
    """Submit `each` jobs from each of `clients` threads of another process at the same time. Return the
    submits per second.
    """
    arguments = [made.url, str(clients), str(each), dumps(encode(spec))]
    command = [sys.executable, "-m", "benchmarks.hammer", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        began = time.perf_counter()
        process.stdin.write("go\n")
        process.stdin.flush()
        process.wait()
        return clients * each / (time.perf_counter() - began)


def follow_starts(made: System, count: int, starts: dict[int, float], ready: threading.Event) -> None:
    """Add the times at which `count` jobs start to `starts`, by job id, when the event stream reports the
    starts. `ready` is set when the first message of the stream has arrived.
    """
    with contextlib.closing(made.client()) as client:
        for batch in client.stream(client.health().seq, rows=False):
            ready.set()
            now = time.perf_counter()
            for event in batch.events if batch else ():
                if event.kind == "AttemptStarted" and event.job is not None:
                    starts[event.job] = now
            if len(starts) >= count:
                return


def run() -> None:
    heading("System: unix socket, SQLite with synchronous=FULL, real agent and processes, p50 / p95")
    with system() as made, contextlib.closing(made.client()) as client:
        held = JobSpec(command=("/bin/true",), hold=True)
        row(
            "submit, one at a time, durable",
            spread([timed(lambda: client.submit(held)) for _ in range(500)]),
            "5 ms p50",
        )
        before = made.cpu_s()
        rate = hammer(made, 32, 250, held)
        spent = (made.cpu_s() - before) / 8_000
        row("submit, 32 clients, durable", f"{rate:,.0f} /s", "2,000 /s")
        row("  controller CPU per submit", f"{spent * 1e6:.0f} µs")
    with system() as made, contextlib.closing(made.client()) as client:
        starts: dict[int, float] = {}
        ready = threading.Event()
        watcher = threading.Thread(target=follow_starts, args=(made, 200, starts, ready), daemon=True)
        watcher.start()
        asked = {}
        client.submit(JobSpec(command=("/bin/true",), hold=True))
        ready.wait(10)
        for _ in range(200):
            began = time.perf_counter()
            asked[client.submit(TRUE).ids[0]] = began
            time.sleep(0.01)
        watcher.join(30)
        row(
            "submit to started, as the event stream reports it",
            spread([starts[job] - asked[job] for job in starts]),
        )
    for jobs in (2_000, 4_000):
        with system() as made, contextlib.closing(made.client()) as client:
            began, before = time.perf_counter(), made.cpu_s()
            seq = client.health().seq
            hammer(made, 8, jobs // 8, TRUE)
            done = 0
            for batch in client.stream(seq, rows=False):
                done += sum(event.kind == "JobEnded" for event in batch.events) if batch else 0
                if done >= jobs:
                    break
            taken = time.perf_counter() - began
            spent = (made.cpu_s() - before) / jobs
            row(
                f"{jobs:,} jobs of `true`: submit, place, run, complete",
                f"{jobs / taken:,.0f} jobs/s",
                "300 jobs/s",
            )
            row("  controller CPU per job", f"{spent * 1e6:.0f} µs")
