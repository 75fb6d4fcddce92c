"""`corral nodes test` on real nodes with simulated GPUs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.programs import run_corral
from tests.systems import System, system
from wire.names import JobState


@pytest.fixture(scope="module")
def cluster() -> Iterator[System]:
    with system("gpu01", "gpu02") as made:
        yield made.start()


def result_of(cluster: System, *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the checks of a single node."""
    environment = {**os.environ, "CORRAL_URL": f"unix://{cluster.socket}"}
    done: subprocess.CompletedProcess[str] = run_corral(
        "nodes", "test", *words, "-o", "json", environment=environment, place=cluster.place
    )
    [result] = json.loads(done.stdout)
    return done.returncode, {each["name"]: each for each in result["checks"]}


def test_healthy_node_passes_and_nothing_stays(cluster: System) -> None:
    code, checks = result_of(cluster, "gpu01")
    assert code == 0, checks
    assert {"Python", "spool", "job", "CPU", "memory", "local disk", "GPUs", "connection", "orders"} <= set(
        checks
    )
    assert checks["job"]["found"].endswith("with 8 GPUs")
    assert checks["GPUs"]["verdict"] in ("ok", "note")
    assert checks["connection"]["found"].startswith("256 KiB to the node and back in ")
    [job] = cluster.jobs().values()
    assert (job.name, job.state, job.gpus) == ("node-test", JobState.COMPLETED, 8)


def test_node_with_jobs_is_tested_with_its_free_gpus(cluster: System) -> None:
    with cluster.client() as client:
        cluster.corral("submit", "--select", "node=gpu02", "--gpus", "6", "--", "sleep", "1000")
        held = max(cluster.jobs())
        cluster.await_jobs([held], JobState.RUNNING)
        code, checks = result_of(cluster, "gpu02", "--job-only")
        assert (code, checks["job"]["found"].endswith("with 2 GPUs")) == (0, True)
        assert checks["free GPUs"]["found"] == "6 GPUs of 8 not free, and not tested"
        assert "Python" not in checks
        code, checks = result_of(cluster, "gpu02", "--job-only", "--gpus", "8", "--timeout", "1s")
        assert (code, set(checks)) == (1, {"job"})
        assert "has not started in 1s" in checks["job"]["found"]
        client.cancel(held)
    late = max(cluster.jobs())
    cluster.await_jobs([held, late])
    assert cluster.jobs()[late].state is JobState.CANCELLED


def test_drained_node_fails_with_the_reason_and_tainted_node_is_result_of(cluster: System) -> None:
    cluster.corral("nodes", "drain", "gpu02")
    code, checks = result_of(cluster, "gpu02", "--job-only")
    assert (code, set(checks)) == (1, {"job"})
    assert checks["job"]["found"] == "no job starts on this node: it is drained"
    cluster.corral("nodes", "resume", "gpu02")
    cluster.corral("nodes", "taint", "gpu02", "broken=fan:NoSchedule")
    code, checks = result_of(cluster, "gpu02", "--job-only", "--gpus", "0")
    assert (code, "GPUs" in checks) == (0, False), checks
    cluster.corral("nodes", "taint", "gpu02", "broken-")


def test_refused_job_is_a_failed_check(cluster: System) -> None:
    code, checks = result_of(cluster, "gpu01", "--job-only", "--gpus", "99")
    assert (code, checks["job"]["verdict"]) == (1, "failed")
    assert checks["job"]["remedy"]
