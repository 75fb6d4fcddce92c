"""Every command that has -o, in every format, on a controller that has objects of every kind."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime

import pytest

from cli.registry import COMMANDS
from tests.limits import PATIENCE_S
from tests.systems import System, system
from wire.names import JobState

SHOWN = (
    "queue",
    "queue --all",
    "job show 1",
    "job show 1 2",
    "job stats 1",
    "controllers",
    "engines",
    "explain 2",
    "submit --dry-run --gpus 2 --label a=b -- true",
    "what-if cancel 1",
    "nodes",
    "nodes show gpu01",
    "maintain",
    "maintain list",
    "gpus",
    "gpus --processes",
    "profiles",
    "profiles show default",
    "plan",
    "projects",
    "projects show vision",
    "queues",
    "quota",
    "token list",
    "whoami",
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
    "report month",
    "report month --by user",
    "report efficiency",
    "report sla",
    "report nodes",
    "events",
    "what-if drain gpu01",
    "workload list",
    "config show",
    "config show scheduler",
    "config explain",
    "config explain project vision",
    "config diff",
    "config list",
    "version",
    "doctor",
)
"""Commands that show something and change nothing."""


NOT_SORTED = (
    "job show 1",
    "job show 1 2",
    "job stats 1",
    "explain 2",
    "submit --dry-run --gpus 2 --label a=b -- true",
    "what-if cancel 1",
    "nodes show gpu01",
    "profiles show default",
    "projects show vision",
    "queue",
    "queue --all",
    "reserve show fans",
    "report estimates",
    "report waste",
    "events",
    "what-if drain gpu01",
    "config explain",
    "config explain project vision",
    "config diff",
    "version",
    "whoami",
    "doctor",
)
"""Commands that show one thing, and lists with an order of their own."""


def words(command: str, *options: str) -> list[str]:
    """The arguments of corral, with the options before the command of a job."""
    before, dashes, job = command.partition(" -- ")
    return [*before.split(), *options, *(["--", *job.split()] if dashes else [])]


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
        made.corral("token", "create", "laptop", "--can", "read")
        made.corral("shares", "set", "vision", "3")
        made.await_jobs([3, 4, 5])
        yield made


@pytest.mark.parametrize("command", SHOWN)
def test_json_output_is_valid_and_has_a_version(cluster: System, command: str) -> None:
    text = cluster.corral(*words(command, "-o", "json"))
    body = json.loads(text)
    assert text.count("\n") == 1
    assert all(each["api_version"] == "v1" for each in (body if isinstance(body, list) else [body]))


@pytest.mark.parametrize("form", ["csv", "name", "jsonpath={.label}"])
def test_submit_answers_in_every_format(cluster: System, form: str) -> None:
    """The job is cancelled again, so that the lists of the other tests do not grow."""
    text = cluster.corral("submit", "--hold", "-o", form, "--", "true")
    label = next(csv.DictReader(io.StringIO(text)))["label"] if form == "csv" else text.strip()
    assert cluster.jobs()[int(label)].label == label
    cluster.corral("job", "cancel", label)


@pytest.mark.parametrize("command", SHOWN)
def test_jsonpath_of_the_whole_answer_is_the_json_output(cluster: System, command: str) -> None:
    whole = json.loads(cluster.corral(*words(command, "-o", "jsonpath={$}")))
    # The values may have changed since the other answer, but not the fields.
    assert type(whole) is type(json.loads(cluster.corral(*words(command, "-o", "json"))))


@pytest.mark.parametrize("command", [each for each in SHOWN if each not in NOT_SORTED])
def test_every_list_can_be_sorted_and_its_columns_chosen(cluster: System, command: str) -> None:
    written = command.split()
    rows = [*csv.reader(io.StringIO(cluster.corral(*written, "-o", "csv")))]
    if rows:
        # Lists, which are joined by ';', are sorted by their lengths.
        place = next(n for n in range(len(rows[0])) if all(";" not in row[n] for row in rows))
        key = rows[0][place]
        order = [
            [*csv.reader(io.StringIO(cluster.corral(*written, "-o", "csv", "--sort", sort)))]
            for sort in (key, f"-{key}")
        ]
        assert [row[place] for row in order[0]][1:] == [row[place] for row in order[1]][:0:-1]
    # Some commands print facts or a note above the table.
    lines = cluster.corral(*written).splitlines()
    heading = next((line.split("  ")[0] for line in lines if line.isupper()), "")
    if heading and rows:
        assert heading in cluster.corral(*written, "--columns", heading.lower()).splitlines()


@pytest.mark.parametrize("command", ["nodes", "nodes list", "queue", "reserve"])
def test_watched_list_is_printed_again_without_terminal_sequences_in_a_pipe(
    cluster: System, command: str
) -> None:
    watch = [sys.executable, "-m", "cli", *command.split(), "--watch", "--interval", "0.1"]
    environment = {**os.environ, "CORRAL_URL": f"unix://{cluster.socket}", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(watch, env=environment, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        said = [watching.stdout.readline() for _ in range(12)]
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=PATIENCE_S)
    assert watching.returncode == 130
    headings = [line for line in said if line.endswith("  every 0.1 s\n")]
    assert len(headings) >= 2
    assert "\x1b" not in "".join(said)


def test_watched_list_survives_a_restart_of_the_controller() -> None:
    with system("gpu01") as made:
        made.start()
        watch = [sys.executable, "-m", "cli", "nodes", "--watch", "--interval", "0.1", "-o", "name"]
        environment = {**os.environ, "CORRAL_URL": f"unix://{made.socket}", "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(watch, env=environment, stdout=subprocess.PIPE, text=True) as watching:
            assert watching.stdout is not None
            assert watching.stdout.readline() == "gpu01\n"
            made.stop()
            assert any("; trying again" in line for line in watching.stdout)
            made.start()
            assert any(line == "gpu01\n" for line in watching.stdout)
            watching.terminate()
            watching.communicate(timeout=PATIENCE_S)


def test_sorted_list_is_sorted_in_json_too(cluster: System) -> None:
    assert cluster.corral("nodes", "--sort", "-name", "-o", "jsonpath={.nodes[*].name}") == "gpu02 gpu01\n"
    assert cluster.corral("nodes", "list", "--sort", "name", "-o", "name") == "gpu01\ngpu02\n"


@pytest.mark.parametrize("command", SHOWN)
def test_csv_output_is_machine_readable(cluster: System, command: str) -> None:
    text = cluster.corral(*words(command, "-o", "csv"))
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
    text = cluster.corral(*words(command, "-o", "name"))
    assert all(" " not in line for line in text.splitlines())


@pytest.mark.parametrize("command", [*SHOWN, "queue --all -o wide"])
def test_piped_output_has_no_terminal_sequences(cluster: System, command: str) -> None:
    assert "\x1b" not in cluster.corral(*words(command))


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
        "web",
        "demo",
        "controller",
        "reserve",
        "admin",
        "mcp",
        "login",
        "logout",
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
    answer = json.loads(cluster.corral(*words(command, "-o", "json")))
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
        ("nodes --sort gpuz", "--sort: 'gpuz' is not a key\n  Keys are name, state, "),
        ("nodes --columns node,gpuz", "--columns: there is no column 'gpuz'\n  Columns are node, state, "),
        ("nodes -o jsonpath={.node[*].name}", "-o jsonpath: at character 3: there is no field 'node'"),
        ("nodes -o jsonpath={.nodes[*}", "at character 10: expected ']', found '}'"),
        ("nodes -o tables", "'tables' is none of table, wide, json, yaml, csv, name, jsonpath=TEMPLATE"),
        ("nodes add gpu01 10.0.0.7 10.0.0.8", "'10.0.0.8' is an address without a name"),
    ],
)
def test_errors_repeat_the_argument(cluster: System, command: str, told: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        cluster.corral(*command.split())
    assert told in caught.value.stderr
