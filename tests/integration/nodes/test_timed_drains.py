"""Drains with a time on a real controller: jobs are warned, continue elsewhere, or end."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from controller.sim.replay.journal import read_journal
from tests.integration.controller.test_replay import in_order, relived
from tests.integration.policy.test_checkpoints import TRAIN
from tests.systems import System
from wire.names import JobState, Reason


def test_jobs_leave_a_node_by_the_time(build: Callable[..., System], tmp_path: Path) -> None:
    system = build("gpu01", "gpu02")
    system.sections["preemption"] = {"grace_s": 0.5}
    system.start()
    system.corral("nodes", "drain", "gpu02")
    saving = ["--checkpoint-signal", "USR1"]
    saving += ["--checkpoint-time", "1s", "--grace", "0.5s", "--checkpoint-dir", str(tmp_path)]
    system.corral("submit", "--gpus", "4", *saving, "--", "sh", "-c", TRAIN)
    fixed = ["--not-preemptible", "--grace", "0.5s"]
    system.corral("submit", "--gpus", "4", *fixed, "--", "sh", "-c", "trap '' TERM; sleep 1000 & wait")
    system.await_jobs([1, 2], JobState.RUNNING)
    system.corral("nodes", "resume", "gpu02")
    tried = json.loads(system.corral("nodes", "drain", "gpu01", "--by", "10s", "--dry-run", "-o", "json"))
    assert [each["how"] for each in tried[0]["drain"]["jobs"]] == ["moved", "ended"]
    with pytest.raises(subprocess.CalledProcessError) as asked:
        system.corral("nodes", "drain", "gpu01", "--by", "10s")
    assert "1 job would be ended. Drain?" in asked.value.stderr
    with pytest.raises(subprocess.CalledProcessError) as past:
        system.corral("nodes", "drain", "gpu01", "--by", "2020-01-01", "--yes")
    assert "corral: --by: the time is in the past" in past.value.stderr
    system.corral("nodes", "drain", "gpu01", "--by", "10s", "--yes", "--why", "new fan")
    shown = system.corral("nodes", "show", "gpu01")
    assert "draining" in shown
    assert "is moved to other nodes" in shown
    assert "node gpu01 is to be empty" in system.corral("explain", "1")
    ended = system.await_jobs([1, 2])
    assert (ended[1].state, ended[1].attempt, ended[1].held[0].node) == (JobState.COMPLETED, 2, "gpu02")
    assert system.corral("job", "logs", "1") == "attempt 2 on gpu02 from step-7\n"
    assert (ended[2].state, ended[2].reason) == (JobState.CANCELLED, Reason.DRAINED)
    assert ended[2].detail == "ended by the drain of node gpu01 (new fan)"
    warned = system.corral("job", "logs", "2", "--stderr")
    assert "the drain of node gpu01 (new fan): the job is told to stop in" in warned
    system.until(
        lambda: json.loads(system.corral("nodes", "show", "gpu01", "-o", "json"))["state"] == "drained",
        "the node is drained",
    )
    assert "is drained now" in system.corral("events")
    happened = read_journal(system.store_url)
    assert relived(happened, system.config) == in_order(happened)
