"""Preemption of real processes: the job saves, leaves, and continues from its checkpoint on another node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.systems import System
from wire.names import JobState

TRAIN = """
from=$(cat "$CORRAL_CHECKPOINT" 2>/dev/null)
echo "attempt $CORRAL_ATTEMPT on $CORRAL_NODE from ${from:-nothing}"
test -z "$from" || exit 0
cd $CORRAL_CHECKPOINT_DIR
trap 'echo step-7 > .new; mv .new 7; exit 0' USR1
sleep 1000 & while :; do wait; done
"""


def test_preempted_job_continues_on_another_node_from_its_checkpoint(
    build: Callable[..., System], tmp_path: Path
) -> None:
    system = build("gpu01", "gpu02")
    system.sections["preemption"] = {"strategies": ["priority"], "min_runtime_s": 0.0, "cooldown_s": 0.0}
    system.start()
    system.corral("nodes", "drain", "gpu02")
    low = ["--priority", "LOW", "--gpus", "8"]
    saving = ["--checkpoint-signal", "USR1", "--checkpoint-dir", str(tmp_path)]
    system.corral("submit", *low, *saving, "--", "sh", "-c", TRAIN)
    system.await_jobs([1], JobState.RUNNING)
    system.corral("submit", "--priority", "HIGH", "--gpus", "8", "--", "sleep", "1000")
    system.await_jobs([2], JobState.RUNNING)
    assert system.jobs()[1].state is JobState.QUEUED
    assert str(tmp_path / "1" / "7") in system.corral("job", "show", "1")
    system.corral("nodes", "resume", "gpu02")
    ended = system.await_jobs([1])[1]
    assert (ended.state, ended.attempt) == (JobState.COMPLETED, 2)
    assert system.corral("job", "logs", "1") == "attempt 2 on gpu02 from step-7\n"


def test_checkpoint_of_a_running_job_is_recorded_when_its_host_dies(
    build: Callable[..., System], tmp_path: Path
) -> None:
    system = build("gpu01")
    system.sections["jobs"] = {"checkpoint_look_s": 0.1}
    system.start()
    script = "cd $CORRAL_CHECKPOINT_DIR; echo step-3 > 3; sleep 1000"
    system.corral("submit", "--checkpoint-dir", str(tmp_path), "--", "sh", "-c", script)
    system.await_jobs([1], JobState.RUNNING)
    system.until(lambda: str(tmp_path / "1" / "3") in system.corral("job", "show", "1"), "it is on record")
    system.kill()
    system.start()
    assert str(tmp_path / "1" / "3") in system.corral("job", "show", "1")
    assert "job 1 saved " in system.corral("events", "--job", "1")
