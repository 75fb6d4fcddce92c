"""Measures how large the store and the spool become with small limits in [retention], while real jobs run and
older jobs are deleted.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from benchmarks.system import System, system
from benchmarks.table import heading, row
from wire.api.service.store import CompactRequest
from wire.http.client import Client
from wire.job.spec import JobSpec

LIMITS = """
[retention]
jobs = 500
journal_entries = 2500
[jobs]
log_attempts = 250
"""
JOBS, ROUNDS = 1_000, 8
WRITES = ("sh", "-c", "head -c 20000 /dev/zero")


def run() -> None:
    heading(f"Retention: {JOBS:,} jobs a round, 500 jobs, 2,500 entries and 250 logs are kept")
    with system(LIMITS) as made, contextlib.closing(Client(made.url, timeout_s=600.0)) as client:
        for number in range(1, ROUNDS + 1):
            _run_jobs(client)
            client.compact(CompactRequest())
            row(f"after {number * JOBS:,} jobs", _sizes(made), "as after the fourth round")


def _run_jobs(client: Client) -> None:
    """Submit an array and wait until all its elements have ended."""
    before = client.health().seq
    left = set(client.submit(JobSpec(command=WRITES, array=f"0-{JOBS - 1}")).ids)
    for batch in client.stream(before):
        left -= {job.id for job in (batch.jobs if batch else ()) if job.state.terminal}
        if not left:
            return


def _sizes(made: System) -> str:
    home = Path(made.url.removeprefix("unix://")).parent
    store = sum(path.stat().st_size for path in home.glob("corral.db*"))
    spool = [path for path in (home / "nodes" / "host").rglob("*") if path.is_file()]
    logs = sum(path.stat().st_blocks * 512 for path in spool)
    return f"store {store / 1e6:.1f} MB, logs {logs / 1e6:.1f} MB in {len(spool)} files"
