"""Measures explain and what-if requests with 10,000 queued jobs: the seconds until the answer, and the delay
of a submit at the same time.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w

from benchmarks.table import heading, row, spread
from wire.api.forecasts import Explanation, WhatIf, WhatIfAnswer
from wire.http.client import Client, Refused, Unreachable
from wire.job.spec import JobSpec
from wire.names import NodeState

QUEUED = 10_000
POLICIES: dict[str, dict[str, Any]] = {
    "easy": {},
    "conservative": {"scheduler": {"backfill": "conservative"}},
    "multifactor, preemption": {
        "scheduler": {"order": "multifactor"},
        "preemption": {"strategies": ["priority"]},
    },
    "fair": {"scheduler": {"order": "fair"}},
}
BUSY_S = 15.0
"""Submits are timed for this many seconds while what-if requests run."""
LIMITS = (600, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400)
SIZES = (1, 1, 1, 2, 2, 4, 8, 8)


@contextmanager
def controller(sections: dict[str, Any]) -> Iterator[Client]:
    """Context manager that runs a controller with one simulated host in a separate process, and returns a
    client. `sections` has further tables of the controller's scheduler.toml.
    """
    with tempfile.TemporaryDirectory(prefix="corral-") as place:
        home = Path(place)
        home.chmod(0o755)
        node = {"gpus": "simulated:8xH100", "cpus": 64, "memory": "512G", "run_as_self": True}
        tables = {
            "controller": {"state_dir": f"{home}/state", "socket": f"{home}/c.sock"},
            "nodes": {"gpu01": node},
            **sections,
        }
        (home / "scheduler.toml").write_text(tomli_w.dumps(tables))
        with (home / "log").open("wb") as log:
            made = subprocess.Popen(
                [sys.executable, "-m", "controller", "--config", f"{home}/scheduler.toml"],
                stdout=log,
                stderr=log,
            )
            try:
                client = Client(f"unix://{home}/c.sock", timeout_s=120)
                _await(client)
                yield client
            finally:
                made.terminate()
                made.wait(60)


def _await(client: Client) -> None:
    while True:
        try:
            if any(node.state is NodeState.UP for node in client.nodes().nodes):
                return
        except (Unreachable, Refused):
            pass
        time.sleep(0.1)


def fill(client: Client, queued: int) -> None:
    """Submit arrays of jobs with different sizes, time limits and priorities, until `queued` jobs wait."""
    number = 0
    each = 50
    while number < queued:
        kind = number // each
        spec = JobSpec(
            command=("sleep", "100000"),
            gpus=SIZES[kind % len(SIZES)],
            time_limit_s=float(LIMITS[kind % len(LIMITS)]),
            priority=(20, 50, 50, 80)[kind % 4],
            project=f"p{kind % 5}",
            array=f"0-{each - 1}",
        )
        number += len(client.submit(spec).ids)


def submits(client: Client, seconds: float) -> list[float]:
    """Submit single jobs for `seconds` seconds, one at a time. Return the seconds that each submit took."""
    taken: list[float] = []
    spec = JobSpec(command=("true",), gpus=8, time_limit_s=60.0, priority=1)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.perf_counter()
        client.submit(spec)
        taken.append(time.perf_counter() - began)
        time.sleep(0.02)
    return taken


def send_what_ifs(url: str, until: float, answers: list[float]) -> None:
    """Send what-if requests one after the other until `time.monotonic()` reaches `until`. Add the seconds of
    each request to `answers`.
    """
    with Client(url, timeout_s=120) as client:
        while time.monotonic() < until:
            began = time.perf_counter()
            client.what_if(WhatIf(cancel=(7,)))
            answers.append(time.perf_counter() - began)


def run() -> None:
    heading(f"questions: {QUEUED:,} queued, one host, a real controller")
    for name, sections in POLICIES.items():
        with controller(sections) as client:
            fill(client, QUEUED)
            answer: Explanation | WhatIfAnswer
            for what in (
                "explain of the 100th",
                "explain of the last",
                "what-if, first part",
                "what-if, all",
            ):
                began = time.perf_counter()
                if what.startswith("explain"):
                    answer = client.explain(100 if what.endswith("100th") else QUEUED)
                else:
                    answer = client.what_if(WhatIf(cancel=(7,)), only_first=what.endswith("first part"))
                taken, until = time.perf_counter() - began, answer.covers_until
                known = "all" if until is None else f"{(until - time.time()) / 3600:.0f} h"
                row(f"{name}: {what}", f"{taken:.2f} s; {known}", "2 s")
            quiet = submits(client, 5)
            row(f"{name}: submit, no questions", spread(quiet))
            answers: list[float] = []
            end = time.monotonic() + BUSY_S
            threads = [
                threading.Thread(target=send_what_ifs, args=(client.url, end, answers)) for _ in range(3)
            ]
            for thread in threads:
                thread.start()
            busy = submits(client, BUSY_S)
            for thread in threads:
                thread.join()
            row(f"{name}: submit, three what-ifs run", spread(busy), "p95 10 ms")
            row(f"{name}: what-if with two others", f"{statistics.median(answers):.2f} s")
