"""The accounts of jobs in a batch system: whose jobs the engine runs, and whose jobs it takes for its own.

The commands of PBS are small scripts here, because a test has only one account.
"""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import pytest

from controller.engines.batch_systems.batch_engine import BatchEngine
from controller.engines.batch_systems.engine_types import PbsEngineType
from controller.engines.batch_systems.slurm.json_output import parse_jobs
from controller.engines.contract import AskRefused, EngineScope, Task
from tests.limits import PATIENCE_S
from wire.agent.orders import Start

PREFIX = "corral-0f3a9c112233-"
OURS, FORGED = f"{PREFIX}1-1-0", f"{PREFIX}2-1-0"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BatchEngine:
    jobs = "".join(
        f"Job Id: {number}.head\n    Job_Name = {tag}\n    Job_Owner = {user}@head\n    job_state = {state}\n"
        "    Exit_status = 0\n\n"
        for number, tag, user, state in (
            (11, OURS, getpass.getuser(), "R"),
            (12, FORGED, "mallory", "R"),
            (13, OURS, "mallory", "F"),
        )
    )
    (tmp_path / "jobs").write_text(jobs)
    for name, line in (
        ("qstat", f"cat {tmp_path}/jobs"),
        ("pbsnodes", "printf 'n1\\n    state = free\\n    resources_available.ncpus = 4\\n'"),
        ("qsub", f"echo 14.head; touch {tmp_path}/submitted"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    kind = PbsEngineType(records=str(tmp_path / "records"))
    return kind.connect(EngineScope("pbs", PREFIX, "", PATIENCE_S))


async def test_a_job_of_another_account_with_the_name_of_a_tag_is_not_ours(engine: BatchEngine) -> None:
    assert [(each.tag, each.ref) for each in (await engine.look()).jobs] == [(OURS, "11.head")]
    (Path(engine._settings.records) / FORGED).mkdir(parents=True)
    assert await engine.proof("12.head", FORGED) is None


async def test_a_job_of_another_user_is_refused_before_the_first_look(
    engine: BatchEngine, tmp_path: Path
) -> None:
    start = Start(3, 1, ("true",), "somebody-else", 1_000, 100)
    with pytest.raises(AskRefused, match=f"submits jobs as {getpass.getuser()}"):
        await engine.ask(Task("default", start), f"{PREFIX}3-1-0", again=False)
    assert not (tmp_path / "submitted").exists()


def test_the_json_of_squeue_names_the_account() -> None:
    [job] = parse_jobs('{"jobs": [{"job_state": "RUNNING", "job_id": 7, "name": "x", "user_name": "ada"}]}')
    assert job.user == "ada"
