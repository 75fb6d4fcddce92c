"""Workloads on a real agent: a file is submitted, fails, and is retried."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from tests.programs import run_corral
from tests.systems import System

FILE = """
name = "sweep"
max_parallel = 2
[defaults]
memory = "64M"
time = "5m"
[tasks.prepare]
command = "echo ready > {place}/data"
[tasks.train]
workdir = "{place}"
command = "cat data && test {{lr}} != 2 -o -e fixed && echo {{lr}} $CORRAL_TASK > out-{{lr}}"
after = ["prepare"]
matrix = {{ lr = [1, 2, 3] }}
[tasks.report]
command = "cat {place}/out-* > {place}/report"
after = ["train"]
"""


def test_a_workload_runs_fails_and_is_retried(build: Callable[..., System], tmp_path: Path) -> None:
    system = build("gpu01").start()
    tmp_path.chmod(0o777)
    file = tmp_path / "sweep.toml"
    file.write_text(FILE.format(place=tmp_path))
    planned = json.loads(system.corral("workload", "submit", "--dry-run", str(file), "-o", "json"))
    assert [job["task"] for job in planned["jobs"]] == ["prepare", "train", "train", "train", "report"]
    number = system.corral("workload", "submit", str(file)).strip()
    waited = run_corral("workload", "wait", number, environment=environment(system))
    assert (waited.returncode, "5 of 5, 1 failed" in waited.stderr) == (1, True), waited.stderr
    rows = system.corral("queue", "--all").splitlines()
    [row] = [line for line in rows if "workload" in line]
    assert len(rows) == 2
    assert len(system.corral("queue", "--all", "--unfold").splitlines()) == 6
    assert len(system.corral("queue", "--state", "failed").splitlines()) == 2
    assert (row.split()[:3], "5 of 5, 1 failed" in row) == (["workload", number, "sweep"], True), row
    shown = system.corral("workload", "show", "last")
    assert shown == system.corral("workload", "show", number)
    assert "FAILED" in shown
    assert [line.split()[0] for line in shown.splitlines()[-3:]] == ["prepare", "train", "report"]
    (tmp_path / "fixed").touch()
    assert (
        system.corral("workload", "retry", number, "--failed") == f"workload {number}: 2 jobs queued again\n"
    )
    assert run_corral("workload", "wait", number, environment=environment(system)).returncode == 0
    assert (tmp_path / "report").read_text() == "1 train\n2 train\n3 train\n"
    assert (
        system.corral("workload", "list")
        == "WORKLOAD  NAME  USER  STATE  PROGRESS  WAITING  RUNNING  SUBMITTED\n"
    )
    listed = json.loads(system.corral("workload", "list", "--all", "-o", "json"))
    assert [(each["state"], each["completed"], each["retries"]) for each in listed["workloads"]] == [
        ("COMPLETED", 5, 1)
    ]


def environment(system: System) -> dict[str, str]:
    return {**os.environ, "CORRAL_URL": f"unix://{system.socket}"}
