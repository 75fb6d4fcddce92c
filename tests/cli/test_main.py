"""Corral as a program: help, exit codes, stdout and stderr, and no traceback in any case."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cli.registry import COMMANDS, OTHER_WORDS
from tests.cli.conftest import Corral
from tests.cli.fake_controller import FakeController, array, job, node
from tests.limits import PATIENCE_S
from wire.api.jobs import Held, QueuePlace
from wire.api.nodes import TimedDrainView
from wire.api.problem import Problem
from wire.api.service.cluster import EventView
from wire.codec import encode
from wire.names import JobState

GROUPS = {
    "job": ["show", "logs", "cancel", "set", "hold", "release", "preempt", "wait"],
    "nodes": ["list", "show", "drain", "resume"],
    "config": ["check"],
    "what-if": ["submit", "cancel", "drain", "resume"],
    "sim": ["run", "generate", "replay", "report"],
}
WAYS = [
    [],
    *([name] for name in COMMANDS),
    *([group, name] for group, names in GROUPS.items() for name in names),
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: " ".join(["corral", *way]))
def test_every_command_has_help_with_examples(corral: Corral, way: list[str]) -> None:
    done = corral(*way, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: {' '.join(['corral', *way])} ")
    if way not in (["job"], ["config"], ["what-if"]):
        assert "Examples:\n    corral" in done.stdout
    assert "-h, --help" in done.stdout
    assert done.stdout.splitlines()[2].strip(), "a sentence about it comes first"
    assert not [line for line in done.stdout.splitlines()[2:] if line.endswith("...")], "no sentence is cut"
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize("meant", sorted(set(OTHER_WORDS.values())))
def test_a_command_that_is_suggested_for_another_word_exists(corral: Corral, meant: str) -> None:
    assert corral(*meant.split(), "--help").returncode == 0


HEAVY = {"textual", "aiohttp", "pydantic", "numpy", "rich", "sqlalchemy", "asyncssh", "controller", "tui"}


@pytest.mark.parametrize(
    ("words", "also"),
    [
        (["--help"], {"wire.http.client", "wire.api", "http.client", "asyncio"}),
        (["--version"], {"wire.http.client", "wire.api", "http.client", "asyncio"}),
        (["submit", "--help"], {"asyncio"}),
        (["submit", "--", "true"], {"asyncio"}),
        (["queue"], {"asyncio", "cli.commands.submit"}),
        (["job", "show", "1"], {"asyncio", "cli.commands.submit"}),
        (["nodes"], {"asyncio", "cli.commands.job"}),
        (["events"], {"asyncio", "cli.commands.job"}),
    ],
    ids=lambda words: " ".join(sorted(words)),
)
def test_a_command_imports_only_what_it_needs(fake: FakeController, words: list[str], also: set[str]) -> None:
    fake.put(job(1))
    code = (
        "import sys; from cli.main import main; code = main(sys.argv[1:]); "
        "print('\\nLOADED', *sys.modules); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *words],
        env={"CORRAL_URL": fake.url, "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    loaded = set(done.stdout.partition("\nLOADED ")[2].split())
    assert "cli.main" in loaded
    assert loaded & (HEAVY | also) == set()


# --- exit codes ---


def test_corral_without_arguments_shows_help(corral: Corral) -> None:
    assert corral().stdout == corral("--help").stdout


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("sumbit", 2, "Did you mean 'submit'?"),
        ("xyzzy", 2, "No such command 'xyzzy'"),
        ("squeue", 2, "No such command 'squeue'. Did you mean 'corral queue'?"),
        ("describe 7", 2, "No such command 'describe'. Did you mean 'corral job show'?"),
        ("--nonsense", 2, "No such option: --nonsense"),
        ("queue --state lost", 2, "'lost' is not a state"),
        ("queue --state lost", 2, "States are queued, scheduled, running, completed, failed, cancelled."),
        ("queue --state preempted", 2, "a preempted job is queued again at once"),
        ("queue -o xml", 2, "'xml'"),
        ("queue --sort size", 2, "Keys are start, id,"),
        ("queue --columns job,size", 2, "there is no column 'size'"),
        ("queue extra", 2, "unexpected extra argument"),
        ("queue --watch --interval 0", 2, "0.1"),
        ("job", 2, "Missing command"),
        ("job show", 2, "Missing argument"),
        ("job show seven", 2, "'seven' is not a job"),
        ("job show 99", 3, "there is no job 99"),
        ("job cancel", 2, "no job is named"),
        ("job cancel 99", 3, "there is no job 99"),
        ("job logs 99", 3, "there is no job 99"),
        ("job logs -n -1 1", 2, "-1"),
        ("job wait 1 --timeout 5", 2, "'5' has no unit"),
        ("nodes show gpu99", 3, "there is no node gpu99"),
        ("nodes drain gpu99", 3, "there is no node gpu99"),
        ("nodes drain", 2, "no node is named"),
        ("events -n many", 2, "many"),
        ("tui", 2, "needs a terminal"),
        ("config check nowhere.toml", 2, "there is no such file"),
        ("controller --config nowhere.toml", 2, "there is no such file"),
    ],
)
def test_errors_go_to_stderr_with_their_exit_code(
    fake: FakeController, corral: Corral, words: str, code: int, told: str
) -> None:
    fake.put(job(1))
    done = corral(*words.split(), url=fake.url)
    assert done.returncode == code
    assert told in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("status", "problem", "code"),
    [
        (400, "invalid", 2),
        (403, "not_allowed", 4),
        (404, "not_found", 3),
        (409, "conflict", 1),
        (413, "too_large", 2),
        (422, "never_fits", 5),
        (500, "internal", 1),
        (503, "stopping", 7),
        (507, "storage_full", 1),
        (418, "something_new", 1),
    ],
)
def test_refusal_of_the_controller_sets_the_exit_code(
    fake: FakeController, corral: Corral, status: int, problem: str, code: int
) -> None:
    fake.refusals["POST /v1/jobs"] = (status, Problem(problem, "no \x1b[2Jway", "spec.gpus", "ask for less"))
    done = corral("submit", "--", "true", url=fake.url)
    assert done.returncode == code
    assert "no \ufffd[2Jway" in done.stderr
    assert "ask for less" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "words",
    ["submit -- true", "run -- true", "queue", "job show 1", "job wait 1", "nodes", "events", "job cancel 1"],
)
def test_missing_controller_has_exit_code_7_and_a_hint(corral: Corral, words: str) -> None:
    done = corral(*words.split())
    assert done.returncode == 7
    assert "the socket does not exist" in done.stderr
    assert "corral controller" in done.stderr
    assert done.stdout == ""


def test_missing_token_is_named_by_its_variable(fake: FakeController, corral: Corral) -> None:
    fake.refusals["GET /v1/nodes"] = (401, Problem("not_allowed", "no token", "Authorization", "Send …"))
    done = corral("nodes", url=fake.url)
    assert done.returncode == 4
    assert done.stderr.startswith("corral: no token\n  Set CORRAL_TOKEN")


def test_address_can_be_given_by_a_flag(fake: FakeController, corral: Corral) -> None:
    assert corral("--url", fake.url, "queue").returncode == 0
    assert corral("--url", "nonsense", "queue").returncode == 7


BROKEN = {
    "nothing": [],
    "no such script": ["missing.sh"],
    "a directory": ["."],
    "a binary": ["binary"],
    "an empty script": ["empty.sh"],
    "a bad directive": ["bad.sh"],
    "an unsupported directive": ["slurm.sh"],
    "a huge script": ["huge.sh"],
    "an unknown option": ["--gpsu", "1", "--", "true"],
    "an option without value": ["--gpus"],
    "an empty command": ["--", ""],
    "one and a half GPUs": ["--gpus", "1.5", "--", "true"],
    "negative GPUs": ["--gpus", "-1", "--", "true"],
    "not a number of GPUs": ["--gpus", "NaN", "--", "true"],
    "GPUs that do not divide": ["--gpus", "7", "--nodes", "2", "--", "true"],
    "memory without unit": ["--memory", "16", "--", "true"],
    "time without unit": ["--time", "90", "--", "true"],
    "an endless time": ["--time", "999999d", "--", "true"],
    "no cores": ["--cpus", "0", "--", "true"],
    "an unknown priority": ["--priority", "now", "--", "true"],
    "a backward array": ["--array", "9-1", "--", "true"],
    "a huge array": ["--array", "0-999999999", "--", "true"],
    "a label without value": ["--select", "rack", "--", "true"],
    "a variable that is not set": ["--env", "NOT_SET_HERE", "--", "true"],
    "a NUL-free but broken name": ["--name", "x" * 300, "--", "true"],
}


@pytest.mark.parametrize("case", BROKEN)
def test_invalid_submit_is_not_sent(fake: FakeController, corral: Corral, tmp_path: Path, case: str) -> None:
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "empty.sh").write_text("")
    (tmp_path / "bad.sh").write_text("#!/bin/bash\n#CORRAL --gpus two\n")
    (tmp_path / "slurm.sh").write_text("#!/bin/bash\n#SBATCH --clusters=other\n")
    (tmp_path / "huge.sh").write_text("#" * 200_000)
    for command in ("submit", "run"):
        done = corral(command, *BROKEN[case], url=fake.url)
        assert done.returncode == (3 if case == "no such script" else 2)
        assert done.stderr.startswith("corral: ")
        assert done.stderr.count("\n") >= 2, "what is wrong, and what to do about it"
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
    assert fake.asked("POST") == []


# --- stdout and stderr ---


def test_submit_prints_only_the_job_id(fake: FakeController, corral: Corral) -> None:
    done = corral("submit", "--gpus", "1", "--", "train", "--lr", "1", url=fake.url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "8\n", "")
    [request] = [each for each in fake.peer.requests if each.method == "POST"]
    assert json.loads(request.body)["spec"]["command"] == ["train", "--lr", "1"]


def test_dry_run_sends_nothing(fake: FakeController, corral: Corral) -> None:
    fake.put(job(1), job(2))
    fake.nodes["gpu01"] = node("gpu01")
    assert corral("submit", "--dry-run", "--", "true", url=fake.url).returncode == 0
    assert corral("run", "--dry-run", "--", "true", url=fake.url).returncode == 0
    assert corral("job", "cancel", "--dry-run", "all", url=fake.url).stdout.count("\n") == 3
    assert corral("nodes", "drain", "--dry-run", "gpu01", url=fake.url).returncode == 0
    asked = [each for each in fake.peer.requests if each.method == "POST"]
    [request] = [each for each in asked if each.target != "/v1/jobs/preview"]
    assert len(asked) == 3
    assert (request.target, json.loads(request.body)["only_tell"]) == ("/v1/jobs/orders", True)


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("drain gpu01", "node gpu01: would be drained"),
        ("resume gpu01", "node gpu01: would be resumed"),
        ("drain --by 2h gpu01", "node gpu01: would be drained"),
    ],
)
def test_dry_run_on_nodes_says_that_nothing_is_done(
    fake: FakeController, corral: Corral, command: str, line: str
) -> None:
    fake.nodes["gpu01"] = replace(node("gpu01"), drain=TimedDrainView(9e9, "root"))
    done = corral("nodes", *command.split(), "--dry-run", url=fake.url)
    first, *leaving = done.stderr.splitlines()
    assert first == line
    assert bool(leaving) == ("drain" in command), "a resume withdraws the drain"


def test_queue_in_every_format(fake: FakeController, corral: Corral) -> None:
    jobs = [job(1), *array(2, 2), job(9, name="a,b\n\x1b"), job(10, state=JobState.COMPLETED)]
    fake.put(*jobs)
    table = corral("queue", url=fake.url).stdout
    assert [line.split()[0] for line in table.splitlines()] == ["JOB", "1", "2_0", "2_1", "9"]
    assert "\x1b" not in table
    assert corral("queue", "-o", "name", "--all", url=fake.url).stdout.split() == [
        "10",
        "1",
        "2_0",
        "2_1",
        "9",
    ]
    body = json.loads(corral("queue", "-o", "json", "--all", url=fake.url).stdout)
    assert body == {
        "api_version": "v1",
        "jobs": [encode(each) for each in (jobs[-1], *jobs[:-1])],
        "seq": 9,
        "total": 5,
        "next": None,
        "groups": [],
        "places": [],
    }
    rows = list(csv.DictReader(io.StringIO(corral("queue", "-o", "csv", url=fake.url).stdout)))
    assert rows[-1]["label"] == "9"
    assert rows[-1]["name"] == "a,b\ufffd\ufffd"


def test_queue_is_in_the_order_of_starts(fake: FakeController, corral: Corral) -> None:
    """Started jobs, then waiting jobs by place, then jobs without a place."""
    begun = job(4, state=JobState.RUNNING, started_at=100.0)
    fake.put(job(1), job(2), job(3), begun)
    fake.places = (QueuePlace(3, 1, 1_794_000_000.0), QueuePlace(1, 2))
    listed = corral("queue", "-o", "name", url=fake.url).stdout.split()
    assert listed == ["4", "3", "1", "2"]
    table = corral("queue", "--columns", "job,place,starts", url=fake.url).stdout.splitlines()
    assert table[0].split() == ["JOB", "PLACE", "STARTS"]
    assert [line.split()[:3] for line in table[1:]] == [["4"], ["3", "1", "≈"], ["1", "2"], ["2"]]
    assert corral("queue", "--sort", "-id", "-o", "name", url=fake.url).stdout.split() == ["4", "3", "2", "1"]


def test_queue_filters_by_project_queue_node_and_name(fake: FakeController, corral: Corral) -> None:
    running = job(3, state=JobState.RUNNING, held=(Held("gpu02", 1000, 1024),))
    fake.put(job(1, name="sweep-1", project="speech"), job(2, queue="short"), running)
    for words, listed in {
        "--project speech": ["1"],
        "--queue short": ["2"],
        "--node gpu02": ["3"],
        "--name sweep-*": ["1"],
    }.items():
        assert corral("queue", *words.split(), "-o", "name", url=fake.url).stdout.split() == listed


def test_long_queue_is_one_json_document(fake: FakeController, corral: Corral) -> None:
    fake.put(*(job(number) for number in range(1, 2_501)))
    body = json.loads(corral("queue", "-o", "json", url=fake.url).stdout)
    assert [each["id"] for each in body["jobs"]] == list(range(1, 2_501))
    assert body["next"] is None


def test_closed_output_pipe_ends_the_command_quietly(fake: FakeController, corral: Corral) -> None:
    fake.put(*(job(number) for number in range(1, 2_501)))
    done = subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", f"{sys.executable} -P -m cli queue | head -1"],
        env={"CORRAL_URL": fake.url, "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stderr) == (141, "")
    assert done.stdout.startswith("JOB")


@pytest.mark.parametrize(
    ("ending", "code", "told"),
    [(">/dev/full", 1, "No space left on device"), (">&-", 0, ""), ("2>&-", 0, ""), (">&- 2>&-", 0, "")],
)
def test_unwritable_output_is_reported(fake: FakeController, ending: str, code: int, told: str) -> None:
    fake.put(job(1))
    done = subprocess.run(
        ["/bin/bash", "-c", f"{sys.executable} -P -m cli queue {ending}"],
        env={"CORRAL_URL": fake.url, "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == code
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_debug_variable_shows_where_a_system_call_failed(corral: Corral) -> None:
    words, place = ("config", "add", "lab", "http://127.0.0.1:1"), "/proc/nowhere"
    usual = corral(*words, XDG_CONFIG_HOME=place)
    assert (usual.returncode, "Traceback" in usual.stderr) == (1, False)
    shown = corral(*words, XDG_CONFIG_HOME=place, CORRAL_DEBUG="1")
    assert (shown.returncode, "Traceback" in shown.stderr) == (1, True)
    assert "in mkdir" in shown.stderr


def test_failed_job_does_not_stop_an_action_on_the_rest(fake: FakeController, corral: Corral) -> None:
    fake.put(job(1), job(2), job(3))
    fake.refused_jobs["2"] = Problem("not_allowed", "only bo may cancel job 2")
    done = corral("job", "cancel", "99", "1-3", url=fake.url)
    assert done.returncode == 3
    assert fake.asked() == ["/v1/jobs/orders"] * 2, "first whose they are, because 1-3 is a range"
    assert "there is no job 99" in done.stderr
    assert "only bo may cancel job 2" in done.stderr
    assert "2 done, 2 failed" in done.stderr
    assert done.stdout == ""


def test_actions_have_json_output(fake: FakeController, corral: Corral) -> None:
    fake.put(job(1), job(2))
    done = corral("job", "hold", "1", "2", "-o", "json", url=fake.url)
    assert [each["id"] for each in json.loads(done.stdout)] == [1, 2]
    assert corral("job", "hold", "1", "-o", "name", url=fake.url).stdout == "1\n"


def test_operator_preempts_jobs(fake: FakeController, corral: Corral) -> None:
    fake.put(job(1), job(2))
    done = corral("job", "preempt", "1", "2", "--hold", url=fake.url)
    assert done.returncode == 0
    order = json.loads(fake.peer.requests[-1].body)
    assert (order["action"], order["jobs"], order["stay_held"]) == ("preempt", ["1", "2"], True)


def test_job_show_prints_every_detail(fake: FakeController, corral: Corral) -> None:
    fake.put(job(7, name="a\x1b[2Jb"))
    shown = corral("job", "show", "7", url=fake.url).stdout
    assert "needs 1 GPU; 0 of 4 nodes can give that now" in shown
    assert "position 3 in the queue" in shown
    assert "python train.py" in shown
    assert "\x1b" not in shown
    assert json.loads(corral("job", "show", "7", "-o", "json", url=fake.url).stdout)["job"]["id"] == 7


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([], "1\n2\n3\n4\nunfinished\n==> stderr <==\noh\n"),
        (["--stdout"], "1\n2\n3\n4\nunfinished"),
        (["--stdout", "-n", "2"], "4\nunfinished"),
        (["-n", "0"], ""),
        (["--stdout", "-n", "99"], "1\n2\n3\n4\nunfinished"),
        (["--stdout", "-n", "2", "-f"], "4\nunfinished"),
        (["--stderr"], "oh\n"),
        (["--stderr", "-n", "1"], "oh\n"),
    ],
)
def test_logs_are_written_unchanged(
    fake: FakeController, corral: Corral, options: list[str], shown: str
) -> None:
    fake.put(job(1, state=JobState.COMPLETED, attempt=1))
    fake.logs = {"stdout": b"1\n2\n3\n4\nunfinished", "stderr": b"oh\n"}
    done = corral("job", "logs", "1", *options, url=fake.url)
    assert (done.returncode, done.stdout, done.stderr) == (0, shown, "")


def test_events_are_the_newest_or_those_after_a_position(fake: FakeController, corral: Corral) -> None:
    fake.events = [EventView(seq, 1.0, "JobQueued", f"job {seq} queued", job=seq) for seq in range(1, 51)]
    newest = corral("events", "-n", "2", url=fake.url).stdout
    assert [line.split()[-2] for line in newest.splitlines()[1:]] == ["49", "50"]
    assert corral("events", url=fake.url).stdout.count("\n") == 31
    body = json.loads(corral("events", "--after", "47", "-o", "json", url=fake.url).stdout)
    assert [each["seq"] for each in body["events"]] == [48, 49, 50]


def test_completion_offers_commands_jobs_and_nodes(fake: FakeController, corral: Corral) -> None:
    fake.put(job(71), *array(72, 2), job(80, state=JobState.FAILED))
    fake.nodes = {name: node(name) for name in ("gpu01", "gpu02", "cpu01")}

    def completed(line: str, url: str = fake.url) -> list[str]:
        words = line.split(" ")
        done = corral(
            url=url,
            _CORRAL_COMPLETE="complete_bash",
            COMP_WORDS=line,
            COMP_CWORD=str(len(words) - 1),
        )
        assert done.stderr == ""
        return done.stdout.split()

    assert completed("corral su") == ["submit"]
    assert completed("corral job ca") == ["cancel"]
    assert completed("corral job cancel 7") == ["71", "72_0", "72_1"]
    assert completed("corral job cancel l") == ["last"]
    assert completed("corral nodes drain gpu") == ["gpu01", "gpu02"]
    assert completed("corral nodes drain gpu", url="unix:///nobody.sock") == []
