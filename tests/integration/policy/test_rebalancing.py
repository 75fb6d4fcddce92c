"""Real jobs move on a fragmented cluster: they save, continue on other nodes, and return if these nodes are
lost.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.systems import System
from wire.api.jobs import JobView
from wire.names import JobState

TRAIN = """
from=$(cat "$CORRAL_CHECKPOINT" 2>/dev/null)
echo "attempt $CORRAL_ATTEMPT on $CORRAL_NODE from ${from:-nothing}"
test -z "$from" || exit 0
cd $CORRAL_CHECKPOINT_DIR
trap 'touch ../saving; until test -e ../go; do sleep 0.05; done; echo step-7 > .new; mv .new 7; exit 0' USR1
touch ../up-$CORRAL_JOB_ID
while :; do sleep 0.2; done
"""


@pytest.fixture
def system(build: Callable[..., System], tmp_path: Path) -> System:
    """Two nodes of 8 GPUs with a job of 2 on each, and a waiting job that needs 8 on one node."""
    made = build("gpu01", "gpu02")
    made.sections["preemption"] = {"min_runtime_s": 0.0, "grace_s": 5.0}
    made.sections["rebalance"] = {"mode": "propose", "restart_s": 1.0}
    made.sections["scheduler"] = {"strategy": "spread"}
    made.start()
    for job in (1, 2):
        saving = ["--checkpoint-signal", "USR1", "--checkpoint-dir", str(tmp_path)]
        made.corral("submit", "--gpus", "2", *saving, "--", "sh", "-c", TRAIN)
        made.await_jobs([job], JobState.RUNNING)
        made.until((tmp_path / f"up-{job}").exists, "it can be told to save")
    assert {node_of(job) for job in made.jobs().values()} == {"gpu01", "gpu02"}
    made.corral("submit", "--gpus", "8", "--nodes", "1", "--", "sleep", "1000")
    made.until(lambda: made.jobs()[3].reason.value == "resources", "it finds no place")
    return made


def node_of(job: JobView) -> str:
    return job.held[0].node


def begin_to_move(system: System, place: Path) -> tuple[int, str, str]:
    """Run the only proposal until the job has saved its state. Returns the job, its old and its new node."""
    [proposal] = json.loads(system.corral("rebalance", "-o", "json"))["proposals"]
    [move] = proposal["moves"]
    assert proposal["for_job"] == 3
    system.corral("rebalance", "run", proposal["id"])
    system.until((place / "saving").exists, "it saves its state")
    return move["job"], move["origin"][0]["node"], move["target"][0]["node"]


def test_job_moves_and_the_waiting_job_starts(system: System, tmp_path: Path) -> None:
    mover, old, new = begin_to_move(system, tmp_path)
    assert f"is moved to {new} so that job 3 can start" in system.corral("job", "show", str(mover))
    system.kill()  # the move under way is recorded
    system.start()
    assert system.jobs()[mover].reason.value == "moving"
    (tmp_path / "go").touch()
    assert node_of(system.await_jobs([3], JobState.RUNNING)[3]) == old
    ended = system.await_jobs([mover])[mover]
    assert (ended.state, ended.attempt, node_of(ended)) == (JobState.COMPLETED, 2, new)
    assert system.corral("job", "logs", str(mover)) == f"attempt 2 on {new} from step-7\n"
    assert f"{old} to {new}, attempt 1: runs there since" in system.corral("job", "show", str(mover))
    [move] = csv.DictReader(io.StringIO(system.corral("rebalance", "history", "-o", "csv")))
    assert (move["to"], move["undone"]) == (new, "")
    assert move["done_at"]
    assert json.loads(system.corral("rebalance", "history", "-o", "json"))[0]["to"] == [new]


def test_moving_job_returns_to_its_old_node_when_the_target_is_lost(system: System, tmp_path: Path) -> None:
    mover, old, new = begin_to_move(system, tmp_path)
    system.corral("nodes", "drain", new)
    system.until(
        lambda: "goes back to its former nodes" in system.corral("job", "show", str(mover)), "it is told"
    )
    (tmp_path / "go").touch()
    ended = system.await_jobs([mover])[mover]
    assert (ended.state, ended.attempt, node_of(ended)) == (JobState.COMPLETED, 2, old)
    assert system.corral("job", "logs", str(mover)) == f"attempt 2 on {old} from step-7\n"
    [move] = csv.DictReader(io.StringIO(system.corral("rebalance", "history", "-o", "csv")))
    assert move["undone"]
