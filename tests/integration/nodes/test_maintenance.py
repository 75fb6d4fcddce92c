"""`corral maintain`: nodes leave service, are tested and come back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.programs import run_corral
from tests.systems import System, system
from wire.names import JobState, NodeState

Corral = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[System]:
    with system("gpu01", "gpu02") as made:
        yield made.start()


@pytest.fixture
def corral(cluster: System) -> Corral:
    environment = {**os.environ, "CORRAL_URL": f"unix://{cluster.socket}"}
    return lambda *words: run_corral(*words, environment=environment, place=cluster.place)


def rows(corral: Corral) -> dict[str, dict[str, Any]]:
    return {each["node"]: each for each in json.loads(corral("maintain", "-o", "json").stdout)}


def test_node_is_reserved_drained_emptied_and_brought_back(cluster: System, corral: Corral) -> None:
    corral("submit", "--select", "node=gpu01", "--time", "1h", "--", "sleep", "1000")
    job = max(cluster.jobs())
    cluster.await_jobs([job], JobState.RUNNING)
    began = corral("maintain", "start", "gpu01", "--for", "2h", "--why", "new fan", "--no-wait")
    assert began.returncode == 0, began.stderr
    assert "node gpu01: 1 job on it, which may run to the end" in began.stderr
    row = rows(corral)["gpu01"]
    assert (row["state"], row["jobs"], row["why"]) == ("emptying", [str(job)], "new fan")
    assert row["ends_at"] - row["starts_at"] == 7_200
    with cluster.client() as client:
        assert client.node("gpu01").why == "maintenance: new fan"
        assert client.reservation("maintain-gpu01").spec.maintenance
        client.cancel(job)
        cluster.await_jobs([job])
    ended = corral("maintain", "end", "gpu01")
    assert (ended.returncode, ended.stderr) == (0, "node gpu01: up\n")
    assert rows(corral) == {}
    with cluster.client() as client:
        assert client.reservations().reservations == ()


def test_start_waits_until_the_last_job_has_ended(cluster: System, corral: Corral) -> None:
    go = cluster.place / "go"
    corral("submit", "--select", "node=gpu01", "--", "sh", "-c", f"while [ ! -e {go} ]; do sleep 0.1; done")
    job = max(cluster.jobs())
    cluster.await_jobs([job], JobState.RUNNING)
    words = [sys.executable, "-m", "cli", "maintain", "start", "gpu01", "--for", "1h"]
    environment = {**os.environ, "CORRAL_URL": f"unix://{cluster.socket}"}
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        lines = iter(waiting.stderr.readline, "")
        assert any(line.endswith(f"gpu01: 1 job left: {job}\n") for line in lines)
        go.touch()
        assert any(line.endswith("gpu01: empty\n") for line in lines)
        assert waiting.wait() == 0
    corral("maintain", "end", "gpu01")


def test_start_at_a_time_asks_before_it_ends_jobs(cluster: System, corral: Corral) -> None:
    corral("submit", "--select", "node=gpu01", "--not-preemptible", "--time", "5h", "--", "sleep", "1000")
    job = max(cluster.jobs())
    cluster.await_jobs([job], JobState.RUNNING)
    asked = corral("maintain", "start", "gpu01", "--start", "1h", "--for", "1h")
    assert asked.returncode == 2
    assert "1 job would be ended. Start the maintenance? This question needs a terminal" in asked.stderr
    tried = corral("maintain", "start", "gpu01", "--start", "1h", "--for", "1h", "--dry-run")
    assert tried.returncode == 0
    assert f"job {job} (" in tried.stderr
    assert rows(corral) == {}
    done = corral("maintain", "start", "gpu01", "--start", "1h", "--for", "1h", "--yes", "--no-wait")
    assert done.returncode == 0, done.stderr
    row = rows(corral)["gpu01"]
    assert (row["state"], row["jobs"]) == ("planned", [str(job)])
    assert corral("maintain", "end", "gpu01").returncode == 0
    with cluster.client() as client:
        assert client.node("gpu01").drain is None
        client.cancel(job)
    cluster.await_jobs([job])


def test_node_comes_back_after_a_passed_test_and_stays_after_a_failed_one(
    cluster: System, corral: Corral
) -> None:
    corral("maintain", "start", "gpu02", "--for", "2h", "--why", "fan")
    ended = corral("maintain", "end", "gpu02", "--test")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "gpu02: ready" in ended.stdout
    with cluster.client() as client:
        assert client.node("gpu02").state is NodeState.UP
        assert client.reservations().reservations == ()
        corral("maintain", "start", "gpu02", "--for", "2h", "--why", "fan")
        corral("quota", "set", "project", "default", "queued=0")
        failed = corral("maintain", "end", "gpu02", "--test")
        corral("quota", "unset", "project", "default")
        assert failed.returncode == 1, failed.stdout + failed.stderr
        assert "gpu02: not ready" in failed.stdout
        assert (client.node("gpu02").state, client.node("gpu02").why) == (
            NodeState.DRAINED,
            "maintenance: fan",
        )
        [left] = client.reservations().reservations
        assert (left.spec.name, left.spec.why) == ("maintain-gpu02", "fan")
        assert 7_000 < left.ends_at - left.starts_at <= 7_200
    corral("maintain", "end", "gpu02")


def test_node_is_overdue_when_its_time_is_over(cluster: System, corral: Corral) -> None:
    corral("maintain", "start", "gpu02", "--for", "1s")
    cluster.until(lambda: rows(corral)["gpu02"]["state"] == "overdue", "the end of the maintenance")
    assert corral("maintain", "end", "gpu02").returncode == 0


def test_unknown_node_and_node_that_is_not_in_maintenance_are_refused(corral: Corral) -> None:
    unknown = corral("maintain", "start", "gpu99", "--for", "1h")
    assert (unknown.returncode, "there is no node" in unknown.stderr) == (3, True)
    idle = corral("maintain", "end", "gpu01")
    assert (idle.returncode, "node gpu01 is not in maintenance" in idle.stderr) == (3, True)
