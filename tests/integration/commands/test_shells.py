"""A command and a terminal beside a running job, through command line, API, link and agent."""

from __future__ import annotations

import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from fcntl import ioctl

import pytest

from tests.programs import run_corral
from tests.systems import PATIENCE_S, System
from wire.names import JobState

CORRAL = [sys.executable, "-P", "-m", "cli"]


@pytest.fixture
def running(build: Callable[..., System]) -> System:
    """One job on two nodes that runs."""
    made = build("gpu01", "gpu02").start()
    made.corral("submit", "--nodes", "2", "--env", "MINE=yes", "--", "sleep", "1000")
    made.await_jobs([1], JobState.RUNNING)
    return made


def environment(system: System) -> dict[str, str]:
    return {**os.environ, "CORRAL_URL": f"unix://{system.socket}", "TERM": "xterm"}


def test_exec_with_pipes(running: System) -> None:
    script = "cat; echo $MINE $CORRAL_NODE; echo wrong >&2; exit 9"
    done = subprocess.run(
        [*CORRAL, "exec", "--node", "gpu02", "1", "--", "sh", "-c", script],
        env=environment(running),
        input=b"typed\n" + bytes(range(256)) * 10_000,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 9, done.stderr
    assert done.stdout == b"typed\n" + bytes(range(256)) * 10_000 + b"yes gpu02\n"
    assert done.stderr == b"wrong\n"


def test_exec_on_a_terminal(running: System) -> None:
    """The size of the terminal, keys and the exit code are passed on. The shell ends with its job."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(CORRAL[0], [*CORRAL, "attach", "1"], environment(running))
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    os.write(terminal, b"stty size; echo $CORRAL_NODE $((6*7))\n")
    _until(terminal, b"33 111\r\ngpu01 42\r\n")
    # A shell about to start a program would get the Ctrl-C that is meant for the program.
    os.write(terminal, b"sh -c 'echo asleep $((5*5)); exec sleep 1000'\n")
    _until(terminal, b"asleep 25")
    os.write(terminal, b"\x03")  # ends the sleep on the node, not the local corral
    os.write(terminal, b"echo still $((7*7))\n")
    _until(terminal, b"still 49")
    running.corral("job", "cancel", "1")
    _until(terminal, b"corral: the job has ended, and the command with it")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) in (129, 137)  # ended by SIGHUP, or by the SIGKILL that follows
    running.await_jobs([1], JobState.CANCELLED)


def test_a_command_that_ends_with_the_controller_says_so(running: System) -> None:
    beside = subprocess.Popen(
        [*CORRAL, "exec", "1", "--", "sh", "-c", "echo begun; exec sleep 1000"],
        env=environment(running),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert beside.stdout is not None
        assert beside.stdout.readline() == b"begun\n"
        running.stop()
        _, complaint = beside.communicate(timeout=PATIENCE_S)
    finally:
        beside.kill()
    assert beside.returncode
    assert b"has ended with it; the job goes on" in complaint, complaint
    running.start()
    assert running.jobs()[1].state is JobState.RUNNING


def _until(terminal: int, wanted: bytes) -> None:
    seen = b""
    deadline = time.monotonic() + PATIENCE_S
    while wanted not in seen:
        assert select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0], seen
        seen += os.read(terminal, 65_536)


def test_run_in_a_terminal_ends_the_job_with_the_exit_code_of_the_command(running: System) -> None:
    script = "read -r line; echo $CORRAL_NODE-$line $(tty | cut -c1-5); exit 7"
    pid, terminal = pty.fork()
    if pid == 0:
        words = [*CORRAL, "run", "--pty", "--memory", "64M", "--workdir", "/tmp", "--", "sh", "-c", script]
        os.execve(CORRAL[0], words, environment(running))
    _until(terminal, b"RUNNING")
    os.write(terminal, b"typed\n")
    _until(terminal, b"-typed /dev/")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 7
    job = max(running.jobs())
    ended = running.await_jobs([job])[job]
    assert (ended.state, ended.exit_code, ended.name) == (JobState.FAILED, 7, "sh")


def test_run_in_a_terminal_is_refused_without_a_terminal(running: System) -> None:
    words = [*CORRAL, "run", "--pty", "--memory", "64M", "--", "cat"]
    before = running.jobs()
    for stdin in (subprocess.DEVNULL, subprocess.PIPE):
        done = subprocess.run(
            words, env=environment(running), capture_output=True, text=True, stdin=stdin, timeout=PATIENCE_S
        )
        assert (done.returncode, "--pty needs a terminal" in done.stderr) == (2, True), done.stderr
        assert "corral exec" in done.stderr
    assert running.jobs() == before, "no job was submitted"


def test_exec_with_a_terminal_is_refused_without_one(running: System) -> None:
    """The command would never see the end of its input."""
    for stdin in (subprocess.DEVNULL, subprocess.PIPE):
        done = subprocess.run(
            [*CORRAL, "exec", "--tty", "1", "--", "cat"],
            env=environment(running),
            capture_output=True,
            text=True,
            stdin=stdin,
            timeout=PATIENCE_S,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert "--tty needs a terminal" in done.stderr


def test_job_in_a_terminal_ends_if_its_terminal_is_killed(running: System) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        words = [*CORRAL, "run", "--pty", "--memory", "64M", "--", "sh", "-c", "echo be''gun; sleep 1000"]
        os.execve(CORRAL[0], words, environment(running))
    _until(terminal, b"begun")
    job = max(running.jobs())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(terminal)
    assert running.await_jobs([job])[job].state is JobState.FAILED


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("exec", "2", "--", "true"), 3, "there is no job"),
        (("exec", "--node", "gpu09", "1", "--", "true"), 3, "job 1 is not on node 'gpu09'"),
        (("exec", "1", "--", "no-such-program"), 127, "cannot run no-such-program"),
        (("job", "exec", "1", "--", "no-such-program"), 127, "cannot run no-such-program"),
        (("job", "attach", "2"), 3, "there is no job"),
    ],
)
def test_exec_errors_are_reported(running: System, words: tuple[str, ...], code: int, told: str) -> None:
    done = subprocess.run(
        [*CORRAL, *words], env=environment(running), capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert (done.returncode, told in done.stderr) == (code, True), done.stderr


def test_shell_completes_queues_projects_and_reservations(build: Callable[..., System]) -> None:
    system = build("gpu01")
    system.sections["queues"] = {"nightly": {}, "default": {}}
    system.sections["projects"] = {"vision": {}, "video": {}}
    system.start()
    system.corral("reserve", "create", "course", "--node", "gpu01", "--start", "+2h", "--for", "1h")

    def completed(line: str) -> list[str]:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
        variables = {**environment(system), **words, "_CORRAL_COMPLETE": "complete_bash"}
        done = run_corral(environment=variables, check=False)
        assert done.stderr == ""
        return done.stdout.split()

    assert completed("corral submit --queue n") == ["nightly"]
    assert sorted(completed("corral submit --project vi")) == ["video", "vision"]
    assert completed("corral submit --reservation c") == ["course"]
    assert completed("corral job set 7 --queue n") == ["nightly"]
    assert completed("corral queue --queue n") == ["nightly"]
    assert sorted(completed("corral queue --project vi")) == ["video", "vision"]
    assert completed("corral reserve cancel c") == ["course"]
