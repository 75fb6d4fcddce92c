"""Measures a store with years of history: seconds of a restart, cost of reports, and the delay of other
requests.

The store holds 300,000 ended jobs and 100,000 waiting jobs. It is built once per run. If the environment
variable CORRAL_BENCH_STORE names a directory, the store is kept there for the next run. CORRAL_BENCH_JOBS
sets other numbers of jobs, such as 300000,100000.
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
from dataclasses import replace
from pathlib import Path

from benchmarks.core import timed
from benchmarks.system import System
from benchmarks.table import heading, row, spread
from controller.core.model.allocation import Allocation
from controller.core.model.events.attempts import AttemptExited, AttemptStarted, JobEnded, JobPlaced
from controller.core.model.events.event import Event
from controller.core.model.events.queued import JobQueued
from controller.core.model.job import Job, Member
from controller.core.model.request import request_of
from controller.core.model.rows import Batch
from controller.core.state.job_and_node_rows import job_row
from controller.daemon.store_threads import entry_of
from controller.store.store import Store
from wire.agent.orders import GpuHold
from wire.agent.reports import GpuUse
from wire.http.transport import Refused, Transport, Unreachable
from wire.job.spec import JobSpec
from wire.names import JobState, Reason

ENDED, QUEUED = (int(part) for part in os.environ.get("CORRAL_BENCH_JOBS", "300000,100000").split(","))
AT_ONCE = 2_000
BEGAN = time.time() - 365 * 86_400
PATIENCE_S = 120.0


def run() -> None:
    heading(f"Store: {ENDED:,} jobs ended, {QUEUED:,} queued, SQLite")
    with _home() as home:
        database = home / "corral.db"
        if not database.exists():
            build(database)
        row("database", f"{database.stat().st_size / 1e6:,.0f} MB")
        with _restarted(home) as made:
            _measure(made)


@contextlib.contextmanager
def _home() -> Iterator[Path]:
    kept = os.environ.get("CORRAL_BENCH_STORE")
    if kept:
        Path(kept).mkdir(mode=0o700, exist_ok=True)
        yield Path(kept)
        return
    with tempfile.TemporaryDirectory(prefix="corral-bench-") as made:
        yield Path(made)


def build(database: Path) -> None:
    """Write the events and rows of all jobs to a new store, as a controller would."""
    with contextlib.closing(Store.open(f"sqlite:///{database}")) as store:
        seq = 0
        for first in range(1, ENDED + QUEUED + 1, AT_ONCE):
            jobs = [_job(number) for number in range(first, min(first + AT_ONCE, ENDED + QUEUED + 1))]
            events = [event for job in jobs for event in _life(job)]
            entries = tuple(entry_of(number, event) for number, event in enumerate(events, seq + 1))
            seq += len(entries)
            store.commit(Batch(entries, tuple(job_row(job, with_spec=True) for job in jobs), ()))


def _job(number: int) -> Job:
    """Return the job with this number. The number determines the user, the project and the size of the job.
    One job in five has a command that no other job has.
    """
    spec = JobSpec(
        command=("python", "train.py", f"--seed={number if number % 5 == 0 else number % 50}"),
        name=f"train{number % 40}",
        gpus=1 + number % 4,
        project=f"project{number % 7}",
        time_limit_s=3_600.0 * (1 + number % 10),
        env={"HOME": "/home/user", "PATH": "/usr/bin:/bin", "SEED": str(number % 50)},
    )
    came = BEGAN + number * 60.0
    job = Job(number, spec, f"user{number % 30}", request_of(spec), came, key=f"{number:032x}")
    if number > ENDED:
        return job
    place = Allocation(
        f"gpu{number % 100:02}",
        spec.cpu_milli,
        spec.memory_mib,
        tuple(GpuHold(f"GPU-{number % 100:02}-{index}", 1_000) for index in range(1 + number % 4)),
    )
    use = GpuUse(55.0 + number % 40, 98, 61_000, 900.0)
    member = Member(place, came + 60, 4_000, came + 3_660, 0, cpu_s=7_000.0, use=use)
    job.set_members({place.node: member})
    return replace(
        job, state=JobState.COMPLETED, reason=Reason.NONE, attempt=1, members=job.members, unended=0,
        placed_at=came + 59, started_at=came + 60, ended_at=came + 3_661, code=0,
    )  # fmt: skip


def _life(job: Job) -> list[Event]:
    queued = JobQueued(job.id, job.submitted_at, job.spec, job.user, job.key)
    if job.ended_at is None:
        return [queued]
    [(node, member)] = job.members.items()
    return [
        queued,
        JobPlaced(job.id, job.submitted_at + 59, 1, (member.allocation,), 0),
        AttemptStarted(job.id, job.submitted_at + 60, 1, node, 4_000),
        AttemptExited(job.id, job.ended_at - 1, 1, node, 0, cpu_s=member.cpu_s, use=member.use),
        JobEnded(job.id, job.ended_at, JobState.COMPLETED, Reason.NONE, code=0),
    ]


@contextlib.contextmanager
def _restarted(home: Path) -> Iterator[System]:
    """Context manager that starts a controller on the store in the directory `home`, and prints the cost of
    the start.
    """
    config = home / "scheduler.toml"
    config.write_text(f'[controller]\nstate_dir = "{home}"\nsocket = "{home}/corral.sock"\n')
    began = time.perf_counter()
    with (
        open(home / "log", "wb") as log,
        subprocess.Popen(
            [sys.executable, "-m", "controller", "--config", str(config)], stdout=log, stderr=log
        ) as controller,
    ):
        made = System(f"unix://{home}/corral.sock", controller.pid)
        try:
            while True:
                with contextlib.suppress(Unreachable), contextlib.closing(made.client()) as client:
                    client.health()
                    break
                if time.perf_counter() - began > PATIENCE_S or controller.poll() is not None:
                    raise SystemExit("benchmarks: the controller did not start in time")
                time.sleep(0.02)
            row("restart until the first answer", f"{time.perf_counter() - began:.1f} s")
            row("  CPU of the restart", f"{made.cpu_s():.1f} s", "5 s")
            row("  memory after the restart", f"{memory_mib(made.pid):,.0f} MB")
            yield made
        finally:
            controller.send_signal(signal.SIGTERM)
            controller.wait(60)


def _measure(made: System) -> None:
    with contextlib.closing(made.client()) as client:
        for what, ask in (
            ("usage by user, a week", lambda: client.usage("user", int(BEGAN + ENDED * 60.0 - 7 * 86_400))),
            ("usage by user, all years", lambda: client.usage("user", 0)),
            ("usage by job, all years", lambda: client.usage("job", 0)),
        ):
            waits, cpu, memory = _measure_request(made, ask)
            row(what, f"{waits[0] * 1e3:,.0f} ms")
            row("  CPU, added memory", f"{cpu * 1e3:,.0f} ms, {memory:+,.0f} MB")
            row("  wait for the event loop meanwhile, p50 / p95", spread(waits[1:] or [0.0]))
        held = JobSpec(command=("/bin/true",), hold=True, array="0-9999")
        waits, cpu, _ = _measure_request(made, lambda: client.submit(held))
        row("submit of an array of 10,000", f"{waits[0] * 1e3:,.0f} ms")
        row("  CPU", f"{cpu * 1e3:,.0f} ms")
        row("  longest wait for the event loop meanwhile", f"{max(waits[1:]) * 1e3:,.0f} ms")


def _measure_request(made: System, ask: object) -> tuple[list[float], float, float]:
    """Send the request `ask`, and small requests at the same time. Return a list with the seconds of `ask`
    and then of each small request, the CPU seconds of the controller, and the MiB by which the memory of the
    controller has grown.
    """
    waits: list[float] = []
    over = threading.Event()

    def send_small_requests() -> None:
        with contextlib.closing(Transport(made.url, 30.0, "")) as line:
            while not over.is_set():
                waits.append(timed(lambda: _send_small_request(line)))
                time.sleep(0.01)

    memory, cpu = memory_mib(made.pid), made.cpu_s()
    thread = threading.Thread(target=send_small_requests)
    thread.start()
    time.sleep(0.1)
    try:
        taken = timed(ask)
    finally:
        time.sleep(0.05)
        over.set()
        thread.join()
    return [taken, *waits], made.cpu_s() - cpu, memory_mib(made.pid) - memory


def _send_small_request(line: Transport) -> None:
    """Send a request for which the controller needs only its event loop. A request to /v1/health would not
    do, because it also waits until a running commit is done.
    """
    with contextlib.suppress(Refused):
        line.ask("GET", "/v1/none", None, (), question=True)


def memory_mib(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0
