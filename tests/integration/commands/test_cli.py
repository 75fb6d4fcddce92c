"""The corral command with a real controller and a real agent on one simulated host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.limits import PATIENCE_S
from tests.programs import run_corral
from wire.api.jobs import JobView
from wire.http.client import Client, Refused, Unreachable
from wire.names import JobState, NodeState

CONFIG = """\
[controller]
state_dir = "{place}/state"
socket = "{place}/c.sock"
[nodes.gpu01]
link = "local"
gpus = "simulated:8xH100"
cpus = 64
memory = "512G"
labels = {{ rack = "r1" }}
run_as_self = true
"""


class CliCluster:
    """A controller that can be killed and started again."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.url = f"unix://{place}/c.sock"
        (place / "scheduler.toml").write_text(CONFIG.format(place=place))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CORRAL_")}
        self.environment = {**kept, "CORRAL_URL": self.url, "GREETING": "hello"}
        self.start()

    def start(self) -> None:
        """Start the controller, and wait until its node is up."""
        with (self.place / "controller.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "cli", "controller", "--config", "scheduler.toml"],
                cwd=self.place,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with suppress(Unreachable), Client(self.url) as client:
                if all(node.state is NodeState.UP for node in client.nodes().nodes):
                    return
            assert self.process.poll() is None, (self.place / "controller.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill the controller with SIGKILL."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self) -> None:
        """End every job, then the controller."""
        with Client(self.url) as client:
            for job in client.jobs(states=[state for state in JobState if not state.terminal]).jobs:
                with suppress(Refused):
                    client.cancel(job.id)
                self.until(job.id, lambda view: view.state.terminal)
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0

    def corral(
        self, *words: str, stdin: int = subprocess.DEVNULL, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        if stdin == subprocess.DEVNULL:
            return run_corral(*words, environment={**self.environment, **more}, place=self.place)
        return subprocess.run(
            [sys.executable, "-P", "-m", "cli", *words],
            cwd=self.place,
            env={**self.environment, **more},
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            [sys.executable, "-P", "-u", "-m", "cli", *words],
            cwd=self.place,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, job: int, good: object) -> JobView:
        """Wait until a condition on the job is true."""
        deadline = time.monotonic() + PATIENCE_S
        with Client(self.url) as client:
            while True:
                view = client.job(job).job
                if good(view):  # type: ignore[operator]
                    return view
                assert time.monotonic() < deadline, view
                time.sleep(0.02)


@pytest.fixture(scope="module")
def cluster() -> Iterator[CliCluster]:
    """One controller for all tests here. Its path is short, because socket paths are limited."""
    with tempfile.TemporaryDirectory(prefix="corral-test-", dir="/tmp") as place:
        made = CliCluster(Path(place))
        try:
            yield made
            if made.process.poll() is not None:
                made.start()
            made.stop()
        finally:
            if made.process.poll() is None:
                made.kill()


# --- submit, wait, logs ---


def test_job_from_submit_to_logs(cluster: CliCluster) -> None:
    submitted = cluster.corral(
        "submit", "--gpus", "2", "--env", "GREETING", "--name", "greet", "--separate-output", "--",
        "sh", "-c", "echo $GREETING from $CORRAL_NODE; echo oh >&2; exit 3",
    )  # fmt: skip
    job = submitted.stdout.strip()
    assert (submitted.returncode, submitted.stdout, submitted.stderr) == (0, f"{job}\n", "")
    waited = cluster.corral("job", "wait", job, "-o", "json")
    assert waited.returncode == 3
    assert [each["state"] for each in json.loads(waited.stdout)] == ["FAILED"]
    assert cluster.corral("job", "logs", job).stdout == "hello from gpu01\n==> stderr <==\noh\n"
    assert cluster.corral("job", "logs", job, "--stdout").stdout == "hello from gpu01\n"
    assert cluster.corral("job", "logs", "--stderr", "last").stdout == "oh\n"
    shown = json.loads(cluster.corral("job", "show", job, "-o", "json").stdout)
    assert (shown["job"]["exit_code"], shown["job"]["gpus"], shown["spec"]["name"]) == (3, 2, "greet")
    kinds = cluster.corral("events", "--job", job, "-o", "json").stdout
    # If the node joins after the submit, the default sizes of the job are changed once.
    told = [event["kind"] for event in json.loads(kinds)["events"] if event["kind"] != "JobEdited"]
    assert told == [
        "JobQueued",
        "JobPlaced",
        "AttemptStarted",
        "AttemptExited",
        "JobEnded",
    ]


def test_script_is_submitted_without_a_shared_file_system(cluster: CliCluster) -> None:
    script = cluster.place / "train.sh"
    script.write_text('#!/bin/bash\n#CORRAL --gpus 1 --name from-script\necho "$0 $1 $#"\nexit 0\n')
    done = cluster.corral("run", "-q", "train.sh", "one two", "--three")
    script.unlink()
    assert (done.returncode, done.stdout, done.stderr) == (0, "train.sh one two 2\n", "")
    assert cluster.corral("job", "show", "last", "-o", "name").stdout != ""


def test_python_script_is_submitted(cluster: CliCluster) -> None:
    (cluster.place / "train.py").write_text("#!/usr/bin/env python3\nimport sys\nprint(sys.argv[1:])\n")
    assert cluster.corral("run", "-q", "train.py", "a").stdout == "['a']\n"


def test_submit_with_wait(cluster: CliCluster) -> None:
    assert cluster.corral("submit", "--wait", "--", "true").returncode == 0
    assert (
        cluster.corral(
            "submit", "--wait", "--array", "0-3", "--", "sh", "-c", "exit $CORRAL_ARRAY_INDEX"
        ).returncode
        == 1
    )
    (cluster.place / "wait.sh").write_text("#!/bin/sh\n#SBATCH --wait\nexit 3\n")
    assert cluster.corral("submit", "wait.sh").returncode == 3


def test_repeated_submission_key_returns_the_same_job(cluster: CliCluster) -> None:
    first = cluster.corral("submit", "--key", "nightly", "--", "true").stdout
    assert cluster.corral("submit", "--key", "nightly", "--", "true").stdout == first


def test_array_is_addressed_by_elements_and_by_name(cluster: CliCluster) -> None:
    array = cluster.corral(
        "submit", "--array", "0-4:2", "--", "sh", "-c", "echo $CORRAL_ARRAY_INDEX"
    ).stdout.strip()
    assert cluster.corral("job", "wait", array).returncode == 0
    labels = [f"{array}_{index}" for index in (0, 2, 4)]
    assert cluster.corral("job", "show", array, "-o", "name").stdout.split() == labels
    assert cluster.corral("job", "logs", f"{array}_4").stdout == "4\n"
    assert cluster.corral("job", "wait", f"{array}_[0,4]", "-o", "name").stdout.split() == [
        labels[0],
        labels[2],
    ]


# --- run ---


def test_run_shows_both_streams_and_exits_with_the_job(cluster: CliCluster) -> None:
    done = cluster.corral("run", "-q", "--", "sh", "-c", "echo out; echo err >&2; exit 42")
    assert (done.returncode, done.stdout, done.stderr) == (42, "out\n", "err\n")
    told = cluster.corral("run", "--", "true")
    assert "does not get the input" not in told.stderr, "there was none"
    assert told.stdout == ""
    assert "COMPLETED" in told.stderr


def test_run_warns_that_a_job_gets_no_piped_input(cluster: CliCluster, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"data\n")
    path = tmp_path / "input"
    path.write_text("data\n")
    with open(reader) as pipe, path.open() as file:
        for source, words, told in ((pipe, (), 1), (file, (), 1), (pipe, ("-q",), 0)):
            done = cluster.corral("run", *words, "--", "cat", stdin=source.fileno())
            assert (done.returncode, done.stdout) == (0, "")
            assert done.stderr.count("does not get the input of this command") == told
        assert os.read(reader, 100) == b"data\n", "it is left to the next command, as in a loop over lines"
        os.close(writer)
        assert "does not get" not in cluster.corral("run", "--", "true", stdin=reader).stderr


def test_run_shows_all_output_of_a_verbose_job(cluster: CliCluster) -> None:
    done = cluster.corral("run", "-q", "--", "seq", "200000")
    assert done.stdout == "".join(f"{number}\n" for number in range(1, 200_001))


def test_run_explains_an_end_that_is_not_the_programs(cluster: CliCluster) -> None:
    missing = cluster.corral("run", "-q", "--", "no-such-program")
    assert missing.returncode == 1
    assert "no-such-program" in missing.stderr
    late = cluster.corral("run", "-q", "--time", "0.3s", "--", "sleep", "60")
    assert late.returncode == 143
    assert "time limit" in late.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_to_run_cancels_the_job_and_shows_its_last_output(
    cluster: CliCluster, number: signal.Signals
) -> None:
    running = cluster.begin(
        "run", "-q", "--", "sh", "-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "up\n"
    running.send_signal(number)
    out, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 128 + number
    assert "bye" in out
    assert "cancelling" in err
    assert cluster.corral("job", "show", "last").stdout.count("CANCELLED") == 1


def test_second_ctrl_c_leaves_run_at_once(cluster: CliCluster) -> None:
    running = cluster.begin(
        "run", "--grace", "1h", "--", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done"
    )
    assert running.stdout is not None
    assert running.stderr is not None
    assert running.stdout.readline() == "up\n"
    running.send_signal(signal.SIGINT)
    while "cancelling" not in running.stderr.readline():
        pass
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130
    job = json.loads(cluster.corral("job", "show", "last", "-o", "json").stdout)["job"]
    for pid in _processes("trap '' TERM; echo up"):
        os.kill(pid, signal.SIGKILL)
    assert cluster.until(job["id"], lambda view: view.state.terminal).state is JobState.CANCELLED


def test_run_ends_when_its_output_pipe_closes(cluster: CliCluster) -> None:
    running = cluster.begin("run", "-q", "--", "sh", "-c", "while :; do echo y; sleep 0.05; done")
    assert running.stdout is not None
    assert running.stdout.readline() == "y\n"
    running.stdout.close()
    assert running.wait(PATIENCE_S) == 141
    assert (
        json.loads(cluster.corral("job", "show", "last", "-o", "json").stdout)["job"]["state"] == "CANCELLED"
    )


# --- waiting, holding, cancelling ---


def test_wait_has_a_time_limit(cluster: CliCluster) -> None:
    job = cluster.corral("submit", "--", "sleep", "600").stdout.strip()
    waited = cluster.corral("job", "wait", job, "--timeout", "0.3s")
    assert (waited.returncode, waited.stdout) == (6, "")
    cluster.corral("job", "cancel", job)
    assert cluster.corral("job", "wait", job).returncode != 0


def test_a_held_job_waits_for_its_release(cluster: CliCluster) -> None:
    job = cluster.corral("submit", "--hold", "--", "true").stdout.strip()
    assert "held" in cluster.corral("queue").stdout
    assert cluster.corral("job", "hold", job).returncode == 0
    assert cluster.corral("job", "release", job).returncode == 0
    assert cluster.corral("job", "wait", job).returncode == 0
    again = cluster.corral("job", "release", job)
    assert again.returncode == 1
    assert "Traceback" not in again.stderr


def test_following_a_job_that_has_not_started(cluster: CliCluster) -> None:
    job = cluster.corral("submit", "--hold", "--", "sh", "-c", "echo at last").stdout.strip()
    following = cluster.begin("job", "logs", "-f", job)
    assert following.stderr is not None
    assert "follows when it starts" in following.stderr.readline()
    cluster.corral("job", "release", job)
    out, _ = following.communicate(timeout=PATIENCE_S)
    assert (following.returncode, out) == (0, "at last\n")


def test_cancel_mine_cancels_all_own_jobs(cluster: CliCluster) -> None:
    jobs = cluster.corral("submit", "--hold", "--array", "0-9", "--", "true").stdout.strip()
    done = cluster.corral("job", "cancel", "--mine", "-o", "name")
    assert set(done.stdout.split()) >= {f"{jobs}_{index}" for index in range(10)}
    assert cluster.corral("queue", "--mine", "-o", "name").stdout == ""


# --- nodes, refusals ---


def test_drained_node_gets_no_job(cluster: CliCluster) -> None:
    drained = cluster.corral("nodes", "drain", "gpu01", "--why", "new fan", "-o", "json")
    assert json.loads(drained.stdout)[0]["state"] == "drained"
    assert "new fan" in cluster.corral("nodes").stdout
    job = cluster.corral("submit", "--", "true").stdout.strip()
    assert json.loads(cluster.corral("job", "show", job, "-o", "json").stdout)["job"]["state"] == "QUEUED"
    assert cluster.corral("nodes", "resume", "gpu01").returncode == 0
    assert cluster.corral("job", "wait", job).returncode == 0
    assert "H100" in cluster.corral("nodes", "show", "gpu01").stdout


def test_nodes_are_drained_and_resumed_by_label(cluster: CliCluster) -> None:
    drained = cluster.corral("nodes", "drain", "--select", "rack=r1", "-o", "json")
    assert [(each["name"], each["state"]) for each in json.loads(drained.stdout)] == [("gpu01", "drained")]
    other = cluster.corral("nodes", "resume", "--select", "rack=r2")
    assert (other.returncode, "no node has the label rack=r2" in other.stderr) == (3, True)
    assert cluster.corral("nodes", "resume").returncode == 2
    assert cluster.corral("nodes", "resume", "--select", "rack=r1").returncode == 0


def test_job_that_fits_no_node_is_refused_by_its_option(cluster: CliCluster) -> None:
    refused = cluster.corral("submit", "--gpus", "9", "--", "true")
    assert refused.returncode == 5
    assert refused.stderr.startswith("corral: --gpus: ")
    elsewhere = cluster.corral("submit", "--select", "rack=r9", "--", "true")
    assert elsewhere.returncode == 5
    assert cluster.corral("submit", "--as-user", "no such; user", "--", "true").returncode == 2


# --- over the death of a controller ---


def test_run_logs_and_wait_survive_a_killed_controller(cluster: CliCluster) -> None:
    go = cluster.place / "go"
    script = f"echo before; while [ ! -e {go} ]; do sleep 0.05; done; echo after; exit 9"
    running = cluster.begin("run", "-q", "--", "sh", "-c", script)
    assert running.stdout is not None
    assert running.stdout.readline() == "before\n"
    waiting = cluster.begin("submit", "--wait", "--", "sh", "-c", script)
    assert waiting.stdout is not None
    job = int(waiting.stdout.readline())
    events = cluster.begin("events", "-f", "-n", "1", "-o", "json")
    assert events.stdout is not None
    seen = [json.loads(events.stdout.readline())]
    cluster.until(job, lambda view: view.state is JobState.RUNNING)
    cluster.kill()
    assert waiting.stderr is not None
    assert "trying again" in waiting.stderr.readline()
    cluster.start()
    go.touch()
    out, _ = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, out) == (9, "after\n")
    assert waiting.wait(PATIENCE_S) == 9
    while [event["kind"] for event in seen].count("JobEnded") < 2:
        seen.append(json.loads(events.stdout.readline()))
    events.send_signal(signal.SIGINT)
    assert events.wait(PATIENCE_S) == 130
    places = [event["seq"] for event in seen]
    assert places == list(range(places[0], places[0] + len(places))), "no gap, no double"


def test_concurrent_submits_get_their_own_jobs(cluster: CliCluster) -> None:
    labels: list[str] = []

    def submit() -> None:
        labels.append(cluster.corral("submit", "--cpus", "0.1", "--", "true").stdout.strip())

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(labels)) == 8
    assert cluster.corral("job", "wait", *labels).returncode == 0


def _processes(words: str) -> list[int]:
    """Processes with these words in their arguments, other than corral itself."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            arguments = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if arguments[:2] == [b"sh", b"-c"] and words.encode() in arguments[2]:
                found.append(int(entry.name))
    return found


# --- explain and what-if ---


def test_advice_of_explain_starts_the_job(cluster: CliCluster) -> None:
    busy = int(cluster.corral("submit", "--gpus", "4", "--time", "2h", "--", "sleep", "600").stdout)
    cluster.until(busy, lambda view: view.state is JobState.RUNNING)
    waiting = int(cluster.corral("submit", "--gpus", "8", "--time", "1h", "--", "sleep", "600").stdout)
    try:
        why = cluster.corral("explain", str(waiting), "--within", "10s").stdout
        assert "it would start now with 4 GPUs instead of 8" in why
        command = next(line for line in why.splitlines() if "corral job set" in line).partition("corral ")[2]
        assert cluster.corral(*command.split()).returncode == 0
        cluster.until(waiting, lambda view: view.state is JobState.RUNNING)
    finally:
        cluster.corral("job", "cancel", str(busy), str(waiting))


def test_explain_and_what_if_agree(cluster: CliCluster) -> None:
    busy = int(cluster.corral("submit", "--gpus", "8", "--time", "2h", "--", "sleep", "600").stdout)
    cluster.until(busy, lambda view: view.state is JobState.RUNNING)
    waiting = int(cluster.corral("submit", "--gpus", "8", "--time", "1h", "--", "true").stdout)
    try:
        why = cluster.corral("explain", str(waiting), "--within", "10s").stdout
        assert "needs 1 node with 8 GPUs" in why
        assert "at the latest" in why
        assert "on gpu01" in why
        answer = json.loads(cluster.corral("explain", str(waiting), "--within", "10s", "-o", "json").stdout)
        assert answer["nodes"] == ["gpu01"]
        asked = cluster.corral("what-if", "cancel", str(busy))
        assert asked.returncode == 0
        assert "now" in asked.stdout.splitlines()[1]
        assert "1 sooner" in asked.stderr
        (cluster.place / "new.toml").write_text('[scheduler]\norder = "shortst"\n')
        wrong = cluster.corral("what-if", "config", "new.toml")
        assert wrong.returncode == 5
        assert "new.toml:2: scheduler.order: there is no order 'shortst'" in wrong.stderr
        (cluster.place / "new.toml").write_text('[scheduler]\norder = "shortest"\n')
        told = cluster.corral("what-if", "config", "new.toml")
        assert (
            "Not considered, although they differ from the configuration in effect: [controller], [nodes]"
            in told.stderr
        )
        would = cluster.corral("what-if", "submit", "--gpus", "1", "--", "true")
        assert "It would wait: needs 1 node with 1 GPU" in would.stderr
        more = cluster.corral("what-if", "nodes", "--add", "2", "--like", "gpu01")
        assert "gpu01+1" in more.stdout
        for words in (
            ("set", str(waiting), "--priority", "90"),
            ("quota", "user", "nobody", "gpus=8"),
            ("reserve", "fans", "--node", "gpu01", "--start", "+4h", "--for", "1h"),
        ):
            assert cluster.corral("what-if", *words).returncode == 0
        assert cluster.corral("what-if", "unreserve", "fans").returncode == 5
        never = cluster.corral("what-if", "submit", "--gpus", "9", "--", "true")
        assert never.returncode == 5
        assert "can never be placed" in never.stderr
        assert json.loads(cluster.corral("queue", "-o", "json").stdout)["total"] >= 2
    finally:
        cluster.corral("job", "cancel", str(busy), str(waiting))
