"""--user, --project, --queue, --node and --name of the commands that list jobs, against a real controller."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.systems import System, system
from wire.job.spec import JobSpec
from wire.names import JobState

ADA, BOB = "ada", "bob"
SLEEP = ("sleep", "1000")
JOBS = (
    (
        ADA,
        JobSpec(SLEEP, name="sweep-1", project="vision", queue="batch", nodes=2, gpus=16, time_limit_s=600.0),
    ),
    (
        BOB,
        JobSpec(SLEEP, name="sweep-2", project="vision", queue="short", cpu_milli=1_000, time_limit_s=600.0),
    ),
    (ADA, JobSpec(SLEEP, name="train", project="speech", queue="batch", gpus=8, time_limit_s=600.0)),
)
"""Job 1 runs on both nodes, job 2 on one of them, and job 3 waits for GPUs."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[System]:
    with system("n1", "n2") as started:
        started.start()
        with started.client() as client:
            for user, spec in JOBS:
                client.submit(spec, as_user=user)
        started.await_jobs([1, 2], JobState.RUNNING)
        yield started


def names(cluster: System, *words: str) -> list[str]:
    return sorted(cluster.corral(*words, "-o", "name").split())


@pytest.mark.parametrize("command", ["queue", "plan"])
def test_lists_show_only_the_selected_jobs(cluster: System, command: str) -> None:
    assert names(cluster, command) == ["1", "2", "3"]
    assert names(cluster, command, "--user", ADA) == ["1", "3"]
    assert names(cluster, command, "--project", "vision") == ["1", "2"]
    assert names(cluster, command, "--project", "vision", "--queue", "short") == ["2"]
    assert names(cluster, command, "--name", "sweep-*") == ["1", "2"]
    assert names(cluster, command, "--name", "sweep-*", "--user", "nobody") == []
    [held] = cluster.jobs()[2].held
    other = {"n1": "n2", "n2": "n1"}[held.node]
    assert "2" in names(cluster, command, "--node", held.node)
    assert "2" not in names(cluster, command, "--node", other)
    body = json.loads(cluster.corral(command, "--queue", "short", "-o", "json"))
    assert [each["label"] for each in body["jobs" if command == "queue" else "entries"]] == ["2"]
    assert body["api_version"] == "v1"


def test_usage_counts_only_the_selected_jobs(cluster: System) -> None:
    assert names(cluster, "usage", "--by", "job") == ["1", "2"]
    assert names(cluster, "usage", "--by", "job", "--queue", "batch") == ["1"]
    assert names(cluster, "usage", "--by", "project", "--user", BOB) == ["vision"]
    assert names(cluster, "usage", "--by", "user", "--project", "speech") == []


def test_workloads_are_selected_by_user_and_name(cluster: System) -> None:
    file = cluster.place / "workload.toml"
    for user, name in ((ADA, "night"), (BOB, "noon")):
        file.write_text(f'name = "{name}"\n[tasks.one]\ncommand = ["true"]\nhold = true\n')
        cluster.corral("workload", "submit", str(file), "--as-user", user)
    [night, noon] = names(cluster, "workload", "list")
    assert names(cluster, "workload", "list", "--user", BOB) == [noon]
    assert names(cluster, "workload", "list", "--name", "nig*") == [night]
    assert names(cluster, "workload", "list", "--name", "nig*", "--user", BOB) == []
