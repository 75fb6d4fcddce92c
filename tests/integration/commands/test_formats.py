"""Every command that has -o, in every format, on a controller that has objects of every kind."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
from collections.abc import Iterator
from datetime import datetime

import pytest

from cli.registry import COMMANDS
from tests.systems import System, system
from wire.names import JobState

SHOWN = (
    "queue",
    "queue --all",
    "job show 1",
    "job show 1 2",
    "explain 2",
    "nodes",
    "nodes show gpu01",
    "gpus",
    "gpus --processes",
    "profiles",
    "profiles show default",
    "plan",
    "queues",
    "quota",
    "notify list",
    "notify outbox",
    "service",
    "shares",
    "licences",
    "reserve list",
    "reserve show fans",
    "rebalance",
    "rebalance history",
    "usage",
    "usage --by project",
    "usage --off-queue",
    "report budget",
    "report estimates",
    "report starts",
    "report fairness",
    "report fairness --by user",
    "report waste",
    "events",
    "what-if drain gpu01",
    "workload list",
    "config show",
    "config diff",
    "config list",
    "version",
)
"""Commands that show something and change nothing."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[System]:
    """Jobs that wait, run and ended, an array, a reservation, a quota, a share, a licence."""
    with system("gpu01", "gpu02") as made:
        made.sections["licences"] = {"matlab": 3}
        made.sections["profiles"] = {"inference": {"users": ["somebody"]}}
        made.start()
        made.corral("submit", "--gpus", "8", "--time", "1h", "--licence", "matlab", "--", "sleep", "1000")
        made.await_jobs([1], JobState.RUNNING)
        made.corral("submit", "--gpus", "16", "--nodes", "2", "--time", "1h", "--hold", "--", "true")
        made.corral("submit", "--array", "3-4", "--project", "vision", "--", "true")
        made.corral("submit", "--name", 'a,"b";c', "--", "false")
        made.corral("reserve", "create", "fans", "--node", "gpu02", "--start", "+2h", "--for", "1h")
        made.corral("quota", "set", "user", "ada", "gpus=8", "soft.gpus=4")
        made.corral("shares", "set", "vision", "3")
        made.await_jobs([3, 4, 5])
        yield made


@pytest.mark.parametrize("command", SHOWN)
def test_json_output_is_valid(cluster: System, command: str) -> None:
    text = cluster.corral(*command.split(), "-o", "json")
    json.loads(text)
    assert text.count("\n") == 1


@pytest.mark.parametrize("command", SHOWN)
def test_csv_output_is_machine_readable(cluster: System, command: str) -> None:
    text = cluster.corral(*command.split(), "-o", "csv")
    titles, *rows = csv.reader(io.StringIO(text))
    assert all(re.fullmatch(r"[a-z][a-z0-9_.]*", title) for title in titles), titles
    assert len({*titles}) == len(titles)
    for row in rows:
        assert len(row) == len(titles)
        for title, value in zip(titles, row, strict=True):
            if value and title.endswith("_at"):
                assert datetime.fromisoformat(value).tzinfo is not None
            if value and title.endswith(("_s", "_mib", "_hours", "_milli", "_w")):
                float(value)


@pytest.mark.parametrize("command", SHOWN)
def test_name_output_has_only_names(cluster: System, command: str) -> None:
    text = cluster.corral(*command.split(), "-o", "name")
    assert all(" " not in line for line in text.splitlines())


@pytest.mark.parametrize("command", [*SHOWN, "queue --all -o wide"])
def test_piped_output_has_no_terminal_sequences(cluster: System, command: str) -> None:
    assert "\x1b" not in cluster.corral(*command.split())


def test_every_command_with_output_is_tested() -> None:
    """A new command joins the list above, or this list of commands that change something or have no
    answer.
    """
    others = {
        "logs",
        "cancel",
        "ps",
        "why",
        "submit",
        "run",
        "job",
        "exec",
        "attach",
        "sim",
        "tui",
        "demo",
        "controller",
        "reserve",
        "admin",
        "mcp",
        "slurm",
    }
    assert {each.split()[0] for each in SHOWN} | others >= {*COMMANDS}


def test_output_values_are_raw(cluster: System) -> None:
    [first, *_] = csv.DictReader(io.StringIO(cluster.corral("queue", "--all", "-o", "csv")))
    assert (first["id"], first["state"], first["gpus"]) == ("1", "RUNNING", "8.0")
    assert float(first["time_limit_s"]) == 3600
    assert datetime.fromisoformat(first["submitted_at"]).tzinfo is not None
    names = [
        row["name"] for row in csv.DictReader(io.StringIO(cluster.corral("queue", "--all", "-o", "csv")))
    ]
    assert 'a,"b";c' in names
    [bill] = csv.DictReader(io.StringIO(cluster.corral("usage", "-o", "csv")))
    assert float(bill["gpu_hours"]) > 0


TRIED = (
    "nodes label gpu01 rack=r9 --dry-run",
    "nodes taint gpu01 broken:NoSchedule --dry-run",
    "quota set user ada gpus=1 --dry-run",
    "shares set vision 9 --dry-run",
    "reserve create later --node gpu01 --start +3h --for 1h --dry-run",
)


@pytest.mark.parametrize("command", TRIED)
def test_dry_run_answers_and_changes_nothing(cluster: System, command: str) -> None:
    def events() -> list[str]:
        with cluster.client() as client:
            return [each.kind for each in client.events().events if each.kind != "StartEstimated"]

    before = events()
    answer = json.loads(cluster.corral(*command.split(), "-o", "json"))
    assert answer["refused"] == []
    assert events() == before


def test_taint_is_removed_by_its_key(cluster: System) -> None:
    cluster.corral(
        "nodes", "taint", "gpu02", "broken=fan:NoSchedule", "broken:PreferNoSchedule", "new:NoSchedule"
    )
    cluster.corral("nodes", "taint", "gpu02", "broken-")
    with cluster.client() as client:
        [node] = [each for each in client.nodes().nodes if each.name == "gpu02"]
    assert node.taints == ("new:NoSchedule",)
    cluster.corral("nodes", "taint", "gpu02", "new-")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("reserve create x --node gpu01", "--for is missing"),
        ("submit --nodes 3 --domains rack=2 -- true", "--domains: 3 nodes"),
        ("nodes add gpu01 10.0.0.7 10.0.0.8", "'10.0.0.8' is an address without a name"),
    ],
)
def test_errors_repeat_the_argument(cluster: System, command: str, told: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        cluster.corral(*command.split())
    assert told in caught.value.stderr
