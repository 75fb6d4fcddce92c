"""The state directory is lost while jobs run: the next start makes a new cluster only on request."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.oracle.oracle import Oracle
from tests.systems import System
from wire.job.spec import JobSpec
from wire.names import JobState

Build = Callable[..., System]


def refused(system: System) -> str:
    before = system.log.stat().st_size
    assert system.launch().wait(60) == 1
    return system.log.read_text()[before:]


def lives(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def running(system: System) -> tuple[Oracle, Path, int]:
    """A job that runs until its gate opens; the pid of its process."""
    oracle, gate = Oracle(system.start()), system.place / "gate"
    with system.client() as client:
        [job] = oracle.submit(client, oracle.spec(gate, gpus=1))
        life = oracle.await_lives(job)[job]
        system.await_jobs([job], JobState.RUNNING)
    return oracle, gate, life.pid


def test_lost_state_directory_is_not_taken_for_a_new_cluster(build: Build) -> None:
    system = build("gpu01")
    _, _, pid = running(system)
    system.kill()
    shutil.rmtree(system.state)
    for _ in range(2):  # the first start has left an empty store
        said = refused(system)
        assert "is empty, but another cluster has left jobs on this host: job 1 of " in said
        assert "corral controller --new-cluster" in said
        assert lives(pid)
    system.program = ("controller", "--new-cluster")
    system.start()
    assert not lives(pid)
    assert "of the former cluster: ended job 1 of " in system.log.read_text()
    assert system.jobs() == {}
    with system.client() as client:
        [job] = client.submit(JobSpec(command=("true",), gpus=8)).ids
    assert system.await_jobs([job])[job].state is JobState.COMPLETED


def test_spool_of_another_store_is_put_aside_only_with_consent(build: Build) -> None:
    system = build("gpu01")
    _, _, pid = running(system)
    system.kill()
    for file in system.state.glob("corral.db*"):
        file.unlink()
    spool = system.state / "nodes" / "gpu01"
    said = refused(system)
    assert f"attempts in {spool}" in said
    assert lives(pid)
    system.program = ("controller", "--new-cluster")
    system.start()
    assert not lives(pid)
    [aside] = spool.parent.glob("gpu01.former-*")
    assert [each.name for each in (aside / "attempts").iterdir()] == ["1.1"]


def test_restored_store_continues_its_jobs(build: Build) -> None:
    system = build("gpu01")
    oracle, gate, pid = running(system)
    system.stop()
    kept = system.place / "kept"
    system.state.rename(kept)
    assert "is empty, but" in refused(system)
    shutil.rmtree(system.state)
    kept.rename(system.state)
    system.start()
    assert lives(pid)
    gate.touch()
    assert oracle.verify() == []
    assert oracle.spoilt() == []
