"""A host whose clock is hours off, and is changed while jobs run: Corral does not depend on it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.clocks import Clock
from tests.systems import System
from wire.job.spec import JobSpec
from wire.job.start_conditions import OnNodeLost
from wire.names import JobState

HOUR_S = 3_600


def test_clock_change_ends_no_job_and_changes_no_usage(build: Callable[..., System], tmp_path: Path) -> None:
    clock = Clock(tmp_path, sys.executable)
    clock.set(3 * HOUR_S)
    told = subprocess.run(
        [clock.python, "-c", "import time; print(time.time())"], capture_output=True, text=True, check=True
    )
    assert float(told.stdout) > time.time() + 2 * HOUR_S
    system, gate = build("gpu01"), tmp_path / "gate"
    system.sections["nodes"]["gpu01"]["python"] = str(clock.python)
    system.sections["scheduler"] = {"lease_s": 3.0, "lease_margin_s": 1.0, "heartbeat_s": 0.4}
    system.start()
    script = f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 7"
    with system.client() as client:
        job = client.submit(
            JobSpec(
                ("sh", "-c", script),
                gpus=1,
                time_limit_s=2 * HOUR_S,
                on_node_lost=OnNodeLost.REQUEUE,
                warn_signal="USR1",
                warn_s=60.0,
            )
        ).ids[0]
        system.await_jobs([job], JobState.RUNNING)
        for each in (system.agent("gpu01"), *system.supervisors()):
            assert "clock.so" in Path(f"/proc/{each.pid}/maps").read_text()
        for hours in (-3, 72, 0):
            clock.set(hours * HOUR_S)
            # The agent and the supervisor have looked at their clocks since.
            short = client.submit(JobSpec(("true",))).ids[0]
            system.await_jobs([short], JobState.COMPLETED)
        assert client.job(job).job.state is JobState.RUNNING
        gate.touch()
        system.await_jobs([job], JobState.FAILED)
        view = client.job(job).job
        assert (view.exit_code, view.attempt) == (7, 1)
        assert view.started_at is not None
        assert view.ended_at is not None
        assert 0 <= view.ended_at - view.started_at < HOUR_S
