"""Signals to a running job, by `corral run` and by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.systems import PATIENCE_S, System
from wire.names import JobState

SCRIPT = (
    "trap 'echo told; exit 7' USR1; trap 'echo two' USR2; sleep 1000 & echo ready; while :; do wait; done"
)


def test_run_forwards_signals_and_exits_with_the_job(build: Callable[..., System]) -> None:
    system = build().start()
    environment = {**os.environ, "CORRAL_URL": f"unix://{system.socket}"}
    words = [sys.executable, "-P", "-m", "cli", "run", "--quiet", "--", "sh", "-c", SCRIPT]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
        system.corral("job", "signal", "1", "USR2")
        assert run.stdout.readline() == "two\n"
        run.send_signal(signal.SIGUSR1)
        assert run.stdout.readline() == "told\n"
        assert run.wait(PATIENCE_S) == 7


def test_process_without_a_handler_survives_a_signal(build: Callable[..., System], tmp_path: Path) -> None:
    system = build().start()
    system.corral("submit", "--", "sleep", "1000")
    system.await_jobs([1], JobState.RUNNING)
    system.corral("job", "signal", "1", "USR1")
    system.corral("submit", "--", "touch", str(tmp_path / "later"))
    system.await_jobs([2], JobState.COMPLETED)
    assert system.jobs()[1].state is JobState.RUNNING
