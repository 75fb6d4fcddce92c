"""The script of a pilot, and what squeue and sacct say about pilots."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from controller.engines.batch_systems.batch_job import BatchJob, Phase
from controller.engines.pools.machine_pool import MachineShape
from controller.engines.pools.slurm_pilots.pilot_commands import (
    PilotStatus,
    look_commands,
    pilot_script,
    pilots,
)
from controller.engines.pools.slurm_pilots.pilot_pool import SlurmPilotType

PREFIX = "corral-0f3a9c112233-"
ONE = f"{PREFIX}m1"


def sacct(*runs: tuple[str, str, str]) -> str:
    """Return the output of sacct for runs of (id, state, name)."""
    return "".join(f"{ref}|{ref}|gpu|{state}|0:0|1|2|3|n1|{name}\n" for ref, state, name in runs)


def test_script_of_a_pilot() -> None:
    job = BatchJob(ONE, (), cpus=4, memory_mib=2_048, gpus=2, partition="gpu", time_limit_s=7_200.0)
    script = pilot_script(job, "python3", "~/.corral/pilots/agents/agent-1.pyz", "/tmp/p")
    options = [line.removeprefix("#SBATCH --") for line in script.splitlines() if line.startswith("#SBATCH")]
    assert options == [
        f"job-name={ONE}",
        "no-requeue",
        "output=/dev/null",
        "error=/dev/null",
        "nodes=1",
        "ntasks-per-node=1",
        "cpus-per-task=4",
        "mem=2048M",
        "gres=gpu:2",
        "time=0-02:00:00",
        "partition=gpu",
    ]
    last = script.splitlines()[-1]
    assert last.startswith("exec python3 -I -S -X utf8 -c ")
    assert last.endswith('"$HOME"/.corral/pilots/agents/agent-1.pyz /tmp/p/"$SLURM_JOB_ID"')


@pytest.mark.parametrize(
    ("listed", "accounting", "phase", "proven"),
    [
        ("PENDING", "", Phase.WAITING, False),
        ("RUNNING", "RUNNING", Phase.RUNNING, False),
        ("RUNNING", "COMPLETED", Phase.RUNNING, False),
        ("COMPLETING", "COMPLETED", Phase.ENDING, False),
        ("CANCELLED", "RUNNING", Phase.ENDED, False),
        ("CANCELLED", "", Phase.ENDED, False),
        ("CANCELLED", "CANCELLED by 0", Phase.ENDED, True),
        ("", "RUNNING", Phase.UNKNOWN, False),
        ("", "TIMEOUT", Phase.ENDED, True),
    ],
)
def test_only_the_accounting_proves_the_end(listed: str, accounting: str, phase: Phase, proven: bool) -> None:
    squeue = f"7|{listed}|N/A|n1|{ONE}\n" if listed else ""
    runs = sacct(("7", accounting, ONE)) if accounting else ""
    [found] = pilots(PREFIX, squeue, runs)
    assert (found.ref, found.token, found.phase, found.proven) == ("7", ONE, phase, proven)


def test_a_run_that_followed_a_requeue_is_alive() -> None:
    runs = sacct(("7", "NODE_FAIL", ONE), ("7", "RUNNING", ONE))
    assert [each.proven for each in pilots(PREFIX, "", runs)] == [False]


def test_jobs_without_a_token_of_this_cluster_are_left_out() -> None:
    squeue = f"7|RUNNING|1700000000|n1|{ONE}\n8|RUNNING|N/A|n1|corral-ffffffffffff-m1\n9|RUNNING|N/A|n1|x\n"
    assert list(pilots(PREFIX, squeue, sacct(("10", "RUNNING", "x")))) == [
        PilotStatus("7", ONE, Phase.RUNNING, "n1", 1_700_000_000.0)
    ]


def test_a_notice_must_be_shorter_than_the_allocation() -> None:
    shape = MachineShape(name="a", cpus=1, memory="1G", price=0.0)
    with pytest.raises(ValueError, match="notice_s must be more than 0 and less than time_s"):
        SlurmPilotType(shapes=(shape,), time_s=60.0, notice_s=60.0)


def test_ids_of_several_pilots_are_found(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"{PREFIX}m{number}").mkdir()
        (tmp_path / f"{PREFIX}m{number}" / "id").write_text(f"{number}\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "id").write_text("3\n")
    command = look_commands(str(tmp_path), PREFIX)[1]
    found = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True)
    assert sorted(found.stdout.split()) == ["1", "2"]
