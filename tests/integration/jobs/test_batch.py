"""A batch script on several nodes runs once, on the first node, with the other nodes reserved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.systems import System
from wire.names import JobState

SCRIPT = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=4
#SBATCH --gpus-per-node=2
echo "run on $SLURMD_NODENAME of $SLURM_JOB_NODELIST"
echo "$SLURM_NTASKS $SLURM_NTASKS_PER_NODE $SLURM_TASKS_PER_NODE $SLURM_CPUS_PER_TASK $SLURM_CPUS_ON_NODE"
echo "${RANK-no rank}"
exit %s
"""


def test_batch_script_runs_once_and_its_exit_code_is_that_of_the_job(
    build: Callable[..., System], tmp_path: Path
) -> None:
    system = build("gpu01", "gpu02").start()
    jobs = []
    for code in (0, 3):
        script = tmp_path / f"{code}.sh"
        script.write_text(SCRIPT % code)
        jobs.append(int(system.corral("submit", str(script))))
    ended = system.await_jobs(jobs)
    assert [ended[job].state for job in jobs] == [JobState.COMPLETED, JobState.FAILED]
    assert [ended[job].exit_code for job in jobs] == [0, 3]
    # The ended job shows all of its nodes, although the other node was given back when the command ended.
    assert [(held.node, held.cpu_milli) for held in ended[jobs[0]].held] == [
        ("gpu01", 16_000),
        ("gpu02", 16_000),
    ]
    for job in jobs:
        log = system.corral("job", "logs", "--node", "gpu01", str(job))
        assert log == "run on gpu01 of gpu[01-02]\n8 4 4(x2) 4 16\nno rank\n"
        assert system.corral("job", "logs", "--node", "gpu02", str(job)) == ""
