"""The real thing: `corral tui` in a real terminal, against a real controller that runs real jobs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cli.spec.spec_to_flags import command_of
from cli.spec.submitter_environment import inherited
from tests.limits import PATIENCE_S
from tests.systems import System, system
from wire.http.client import Client, Refused
from wire.job.spec import JobSpec
from wire.names import JobState, NodeState

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

ROOT = Path(__file__).parents[2]
TALKS = ("/bin/sh", "-c", "echo hello from the job; echo and trouble >&2; exec sleep 600")


class Terminal:
    """A terminal of 120×40 in its own tmux server, with a shell."""

    def __init__(self, place: Path) -> None:
        self._environment = {
            **{name: value for name, value in os.environ.items() if name not in ("TMUX", "NO_COLOR")},
            "TMUX_TMPDIR": str(place),
            "XDG_STATE_HOME": str(place),
            "COLORTERM": "truecolor",
            "LC_ALL": "C.UTF-8",
        }
        self._tmux(
            "-f", "/dev/null", "new-session", "-d", "-s", "t", "-x", "120", "-y", "40", "-c", str(ROOT), "sh"
        )
        self.run("PS1='she''ll> '")
        self.see("shell>")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", *words], env=self._environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    def screen(self) -> str:
        """The text of the terminal."""
        return self._tmux("capture-pane", "-p", "-J", "-t", "t")

    def see(self, *signs: str) -> str:
        """Wait until the terminal shows all of these texts."""
        shown = ""

        def visible() -> bool:
            nonlocal shown
            shown = self.screen()
            return all(sign in shown for sign in signs)

        until(visible, lambda: f"{signs} in\n{shown}")
        return shown

    def press(self, *keys: str) -> None:
        """Keys by tmux's names."""
        self._tmux("send-keys", "-t", "t", *keys)

    def type(self, text: str) -> None:
        """Type a text into the terminal."""
        self._tmux("send-keys", "-t", "t", "-l", text)

    def run(self, command: str) -> None:
        """A command of the shell."""
        self.type(command)
        self.press("Enter")

    @property
    def restored(self) -> bool:
        """Return whether the terminal is ready for a shell: ordinary screen, echo, no mouse reports."""
        state = self._tmux("display", "-p", "-t", "t", "#{alternate_on}#{mouse_any_flag}#{cursor_flag}")
        return state.strip() == "001"

    def close(self) -> None:
        """Hang up."""
        subprocess.run(["tmux", "kill-server"], env=self._environment, capture_output=True, check=False)


def until(true: Callable[[], object], what: Callable[[], str]) -> None:
    """Poll a condition until it is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"never: {what()}"
        time.sleep(0.05)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    yield made
    made.close()


@pytest.fixture
def cluster() -> Iterator[System]:
    with system("gpu01", "gpu02") as made:
        yield made.start()


def tui(cluster: System) -> str:
    """The command that shows this cluster."""
    return f"{sys.executable} -m cli --url unix://{cluster.socket} tui"


def test_terminal_session_from_start_to_end(cluster: System, terminal: Terminal) -> None:
    with cluster.client() as client:
        (first,) = client.submit(JobSpec(TALKS, name="talks", gpus=8, workdir="/")).ids
    cluster.await_jobs([first], JobState.RUNNING)
    terminal.run(tui(cluster))
    terminal.see("8/16 GPUs", "GPUs held", "every GPU", "nothing needs attention", "● live")
    terminal.press("1")
    terminal.see("8/16 GPUs", "talks", "● running", "● live")

    # A look at the job and its output.
    terminal.press("Enter")
    terminal.see("Queue › 1 talks", "hello from the job", "holds     gpu0")
    terminal.press("o")
    terminal.see("and trouble")
    terminal.press("h")
    terminal.see("by order")

    # A new job starts while there is room. The next job waits, with a reason.
    for number in (2, 3):
        terminal.press("N")
        terminal.see("New job", "corral submit")
        terminal.type("sleep 600")
        terminal.press("Tab", "Tab", "BSpace", "8", "C-s")
        terminal.see(f"submitted {number}")
    cluster.await_jobs([2], JobState.RUNNING)
    terminal.see("16/16 GPUs", "○ 1 queued")
    terminal.press(":")
    terminal.type("3")
    terminal.press("Enter")
    terminal.see("Queue › 3 sleep", "why", "fewer than 8 free GPUs")
    terminal.press("h")

    # Cancelling asks first.
    terminal.press("/")
    terminal.type("name:talks")
    terminal.press("Enter")
    terminal.see("1 of 3")
    terminal.press("C")
    terminal.see("Cancel 1 job?", "$ corral job cancel 1")
    terminal.press("Enter")
    terminal.see("● running", "gpu01", "1 of 3")
    assert cluster.jobs()[first].state is JobState.RUNNING
    terminal.press("C")
    terminal.see("Cancel 1 job?")
    terminal.press("Right", "Enter")
    terminal.see("⊘ cancelled")
    cluster.await_jobs([3], JobState.RUNNING)

    # The controller is killed and restarted, and no row is missing or doubled.
    cluster.kill()
    terminal.see("stale")
    cluster.start()
    with cluster.client() as client:
        client.submit(JobSpec(("sleep", "600"), name="talks-again", gpus=1, workdir="/"))
    terminal.see("● live", "talks-again", "2 of 4")

    # A node is drained, and its view shows the reason.
    terminal.press("2")
    terminal.see("gpu01", "gpu02", "NUMA 1")
    terminal.press("D")
    terminal.see("Drain gpu01?")
    terminal.type("new fan")
    terminal.press("Enter")
    terminal.see("▽ drain", "new fan")
    with cluster.client() as client:
        assert client.node("gpu01").state is NodeState.DRAINED

    terminal.press("q")
    terminal.see("shell>")
    terminal.run("echo it ended with $?")
    terminal.see("it ended with 0")
    assert terminal.restored


def test_shares_and_quotas_are_shown_and_edited(cluster: System, terminal: Terminal) -> None:
    with cluster.client() as client:
        first, second = (
            client.submit(JobSpec(("sleep", "600"), name="long", gpus=8, project=project, workdir="/")).ids[0]
            for project in ("vision", "speech")
        )
    cluster.await_jobs([first, second], JobState.RUNNING)
    terminal.run(tui(cluster))
    terminal.see("● live")
    terminal.press("4")
    terminal.see("speech", "vision", "50%")
    terminal.press("E")
    terminal.see("Share of speech", "corral shares set speech …")
    terminal.press("BSpace")
    terminal.type("3")
    terminal.see("corral shares set speech 3", "no job starts sooner or later")
    terminal.press("C-s")
    terminal.see("share of speech set", "75%")
    with cluster.client() as client:
        assert {share.share: share.weight for share in client.shares().shares}["speech"] == 3
    terminal.press("E")
    terminal.type("000000000")
    terminal.press("C-s")
    terminal.see("must be above 0 and at most")
    terminal.press("Escape")
    until(lambda: "Share of" not in terminal.screen(), terminal.screen)

    # A quota for all users, and one for a project, which is removed again.
    terminal.press("5", "N")
    terminal.see("New quota", "$ corral quota set user … …")
    terminal.press("Tab")
    terminal.type("*")
    terminal.press("Tab")
    terminal.type("4")
    terminal.press("C-s")
    terminal.see("quota of user * set", "16/4", "over")
    terminal.press("/")
    terminal.type("vision")
    terminal.press("Enter")
    terminal.see("1 of 5")
    terminal.press("E", "8", "C-s")
    terminal.see("quota of project vision set", "8/8", "full")
    terminal.press("U")
    terminal.see("Unset the quota of project vision?", "no job starts sooner or later")
    terminal.press("Right", "Enter")
    terminal.see("quota of project vision unset")

    # A node is kept although a job may run into it.
    terminal.press("6")
    terminal.see("no reservations; N makes one")
    terminal.press("N")
    terminal.type("fans")
    terminal.press("Tab")
    terminal.type("gpu01")
    terminal.press(*["Tab"] * 7)
    terminal.type("2h")
    terminal.see("would be refused: job 1 on node gpu01 has no time limit")
    terminal.press("C-s")
    terminal.see("or reserve anyway")
    terminal.press(*["Tab"] * 10)
    terminal.type("yes")
    terminal.press("C-s")
    terminal.see("reservation fans: 1 node reserved", "● on", "maintenance")
    terminal.press("C")
    terminal.see("Cancel the reservation fans?")
    terminal.press("Right", "Enter")
    terminal.see("reservation fans cancelled", "no reservations; N makes one")
    with cluster.client() as client:
        assert [(quota.name, quota.quota.hard.gpus) for quota in client.quotas().quotas if quota.edited] == [
            ("*", 4)
        ]


TRAIN = "trap 'echo 7 > $CORRAL_CHECKPOINT_DIR/7; exit 0' USR1; while :; do sleep 0.2; done"


def test_rebalance_is_confirmed_and_moves_a_job(terminal: Terminal, tmp_path: Path) -> None:
    with system("gpu01", "gpu02") as made:
        made.sections["preemption"] = {"min_runtime_s": 0.0, "grace_s": 5.0}
        made.sections["rebalance"] = {"mode": "propose", "restart_s": 1.0}
        made.sections["scheduler"] = {"strategy": "spread"}
        made.start()
        saving = ("--checkpoint-signal", "USR1", "--checkpoint-dir", str(tmp_path))
        for number in (1, 2):
            made.corral("submit", "--gpus", "2", *saving, "--", "sh", "-c", TRAIN)
            made.await_jobs([number], JobState.RUNNING)
        terminal.run(tui(made))
        terminal.see("● live")
        terminal.press("7")
        terminal.see("○ proposed", "is empty")
        made.corral("submit", "--gpus", "8", "--nodes", "1", "--name", "big", "--", "sleep", "600")
        terminal.press("1", "7")
        terminal.see("○ proposed", "job 3 (big) starts")
        terminal.press("M")
        terminal.see("Move 1 job?", "$ corral rebalance run")
        terminal.press("Right", "Enter")
        terminal.see("1 job being moved")
        made.await_jobs([3], JobState.RUNNING)
        terminal.see("✓ moved", "job 3 starts")


def _running(cluster: System) -> int:
    """The process of the terminal UI."""
    found = [each.pid for each in cluster.processes() if "tui" in each.words]
    return found[0] if found else 0


def _there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_change_is_sent_although_the_user_quits_before_the_answer(
    cluster: System, terminal: Terminal
) -> None:
    with cluster.client() as client:
        (job,) = client.submit(JobSpec(("sleep", "600"), name="waits", hold=True, workdir="/")).ids
    terminal.run(f"clear; {tui(cluster)}")
    terminal.see("● live")
    terminal.press("1")
    terminal.see("waits", "held")
    cluster.controller.send(signal.SIGSTOP)
    terminal.press("R")
    terminal.press("q")
    terminal.see("waiting for the controller's answer to a change")
    cluster.controller.send(signal.SIGCONT)
    terminal.run("echo it ended with $?")
    terminal.see("it ended with 0")
    cluster.await_jobs([job], JobState.RUNNING)


def test_terminated_ui_restores_the_terminal(cluster: System, terminal: Terminal) -> None:
    terminal.run(tui(cluster))
    terminal.see("● live")
    os.kill(_running(cluster), signal.SIGTERM)
    terminal.see("shell>")
    terminal.run("echo it ended with $?")
    terminal.see("it ended with 143")
    assert terminal.restored


def test_a_hang_up_signal_gives_the_terminal_back(cluster: System, terminal: Terminal) -> None:
    terminal.run(tui(cluster))
    terminal.see("● live")
    os.kill(_running(cluster), signal.SIGHUP)
    terminal.see("shell>")
    terminal.run("echo it ended with $?")
    terminal.see("it ended with 129")
    assert terminal.restored


def test_ui_ends_when_its_terminal_closes(cluster: System, terminal: Terminal) -> None:
    terminal.run(tui(cluster))
    terminal.see("● live")
    pid = _running(cluster)
    terminal.close()
    until(lambda: not _there(pid), lambda: f"{pid} has ended")


def test_ui_without_a_controller_reports_it(terminal: Terminal, tmp_path: Path) -> None:
    terminal.run(f"{sys.executable} -m cli --url unix://{tmp_path}/none.sock tui; echo it ended with $?")
    shown = terminal.see("it ended with 7")
    assert "no controller at unix://" in shown
    assert "the socket does not exist" in shown
    assert "Traceback" not in shown
    assert terminal.restored


BROKEN = """
import threading
from tests.tui.screens import Screen
class Broken(Screen):
    def act_filter(self):
        raise ValueError("what a pity")
    def act_next(self):
        threading.Thread(target=self.act_filter).start()
screen = Broken()
threading.excepthook = screen.thread_broke
screen.run()
"""


@pytest.mark.parametrize("key", ["/", "Tab"], ids=["on the screen", "in a thread"])
def test_crash_restores_the_terminal_and_is_logged(terminal: Terminal, tmp_path: Path, key: str) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    terminal.run(f"PYTHONPATH=. TMPDIR={tmp_path} {sys.executable} {tmp_path}/broken.py")
    terminal.see("● live")
    terminal.press(key)
    shown = terminal.see("this is a bug: ValueError: what a pity", "Please report it")
    assert "Traceback" not in shown
    assert terminal.restored
    (report,) = tmp_path.glob("corral-tui-*.txt")
    assert report.stat().st_mode & 0o777 == 0o600
    assert "in act_filter" in report.read_text()


def test_ui_refuses_output_into_a_file() -> None:
    from tui.app_interface import CliFunctions
    from tui.launch import run

    assert run("unix:///nowhere", CliFunctions(command_of, inherited)) == 2


def test_command_and_shell_in_a_running_job(cluster: System, terminal: Terminal) -> None:
    with cluster.client() as client:
        (first,) = client.submit(JobSpec(TALKS, name="talks", gpus=1, workdir="/")).ids
    cluster.await_jobs([first], JobState.RUNNING)
    terminal.run(tui(cluster))
    terminal.see("nothing needs attention", "● live")
    terminal.press("1")
    terminal.see("talks", "by order")
    terminal.press("X")
    terminal.see("command in the job")
    terminal.type("sh -c 'echo job $CORRAL_JOB_ID says $((40+2))'")
    terminal.press("Enter")
    terminal.see(f"job {first} says 42", "exit code 0; Enter returns")
    terminal.press("Enter")
    terminal.see("talks", "by order", "● live")
    terminal.press("S")
    terminal.see(f"$ corral attach {first}")
    terminal.type("echo from the shell $((6*7)); exit")
    terminal.press("Enter")
    terminal.see("talks", "by order", "● live")
    # The keys belong to the terminal UI again.
    terminal.press("Enter")
    terminal.see(f"Queue › {first} talks")
    terminal.press("q")
    terminal.see("shell>")
    until(lambda: terminal.restored, terminal.screen)


def test_change_is_refused_after_the_job_has_started(cluster: System, terminal: Terminal) -> None:
    full = JobSpec(("sleep", "600"), name="full", gpus=8, time_limit_s=3600.0, workdir="/")
    with cluster.client() as client:
        running = [client.submit(full).ids[0] for _ in range(2)]
        cluster.await_jobs(running, JobState.RUNNING)
        (waiting,) = client.submit(replace(full, name="waits")).ids
        terminal.run(tui(cluster))
        terminal.see("● live")
        terminal.press("1")
        terminal.see("waits", "by order")
        terminal.press("/")
        terminal.type("name:waits")
        terminal.press("Enter", "C")
        terminal.see("Cancel 1 job?", "no job starts sooner or later")
        client.cancel(running[0])
        cluster.await_jobs([waiting], JobState.RUNNING)
        terminal.press("Right", "Enter")
        terminal.see(f"job {waiting} is RUNNING", "(was QUEUED, attempt 0)")
        assert client.job(waiting).job.state is JobState.RUNNING
        terminal.see("Running  ")
        terminal.press("Right", "Enter")
        cluster.await_jobs([waiting], JobState.CANCELLED)


def test_read_only_terminal_cannot_change_anything(cluster: System, terminal: Terminal) -> None:
    with cluster.client() as client:
        (first,) = client.submit(JobSpec(TALKS, name="talks", gpus=1, workdir="/")).ids
    cluster.await_jobs([first], JobState.RUNNING)
    terminal.run(f"{tui(cluster)} --read-only")
    terminal.see("● live", "read-only")
    terminal.press("1")
    terminal.see("talks", "by order")
    terminal.press("C")
    terminal.see("this screen is read-only")
    # The controller refuses the change also if the client sends it.
    with Client(f"unix://{cluster.socket}", read_only=True) as client:
        assert client.job(first).job.state is JobState.RUNNING
        with pytest.raises(Refused, match="this session is read-only and may not cancel"):
            client.cancel(first)
