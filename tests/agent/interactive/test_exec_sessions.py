"""Commands beside a running job: in its allocation, with or without a terminal, never longer than the job."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import resource
import signal
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.event_loop import await_readable
from agent.isolation import cgroup_detection
from tests import users
from tests.agent.agent_process import AgentProcess, alive, eventually
from wire.agent.orders import (
    CloseShell,
    Note,
    OpenShell,
    ResizeShell,
    Settle,
    ShellInput,
    ShellSignal,
    ShellTaken,
    Stop,
)
from wire.agent.reports import ShellEnded, ShellOutput

Run = Callable[..., AgentProcess]


def output(agent: AgentProcess, stream: str = "stdout", request: int = 1) -> bytes:
    """The output so far."""
    return b"".join(
        b64decode(each.data)
        for each in agent.received
        if isinstance(each, ShellOutput) and (each.request, each.stream) == (request, stream)
    )


def ended(agent: AgentProcess, request: int = 1) -> ShellEnded:
    def found(said: list[object]) -> ShellEnded | None:
        return next((each for each in said if isinstance(each, ShellEnded) and each.request == request), None)

    return agent.until(found)  # type: ignore[arg-type]


def begin(agent: AgentProcess, **order: object) -> None:
    agent.start(1, "sleep", "1000", **order)
    agent.started(1)


def give(agent: AgentProcess, data: bytes, *, end: bool = False) -> None:
    agent.send(ShellInput(1, b64encode(data).decode(), end))


def test_exec_session_passes_input_output_errors_and_exit_code(run: Run) -> None:
    agent = run()
    begin(agent, env={"MINE": "yes"}, workdir="/usr")
    script = "cat; echo $MINE $CORRAL_GPUS; pwd; echo wrong >&2; exit 7"
    agent.send(OpenShell(1, 1, 1, ("sh", "-c", script)))
    give(agent, b"typed\0\xff\n", end=True)
    assert ended(agent) == ShellEnded(1, 7)
    assert output(agent) == b"typed\0\xff\nyes 0\n/usr\n"
    assert output(agent, "stderr") == b"wrong\n"


def test_variables_are_in_the_environment_and_not_in_the_arguments(run: Run) -> None:
    agent = run()
    begin(agent, env={"MINE": "of the job"})
    script = "echo $MINE; tr '\\0' '\\n' < /proc/$$/cmdline | grep -c \"$MINE\""
    variables = {"MINE": "secret-value"}
    agent.send(OpenShell(1, 1, 1, ("sh", "-c", script), variables=variables))
    assert ended(agent) == ShellEnded(1, 1)
    assert output(agent) == b"secret-value\n0\n"
    for wrong in ({"": "x"}, {"A=B": "x"}, {"A": "x\0y"}):
        agent.send(OpenShell(2, 1, 1, ("true",), variables=wrong))
        assert "cannot be a variable" in ended(agent, 2).error
        agent.received.clear()


def test_exec_session_has_a_terminal_with_size_and_keys(run: Run) -> None:
    agent = run()
    begin(agent)
    traps = "trap 'stty size; exit 3' INT; trap 'stty size' WINCH"
    script = f"{traps}; tty; echo $TERM; stty size; while :; do sleep 0.05; done"
    agent.send(OpenShell(1, 1, 1, ("sh", "-c", script), tty=True, rows=30, columns=100, term="xterm"))
    eventually(lambda: b"30 100" in output(agent))
    lines = output(agent).decode().splitlines()
    assert lines[0].startswith("/dev/pts/")
    assert lines[1:] == ["xterm", "30 100"]
    agent.send(ResizeShell(1, 40, 120))
    eventually(lambda: b"40 120" in output(agent))
    give(agent, b"\x03")  # Ctrl-C
    assert ended(agent) == ShellEnded(1, 3)


def test_a_notice_for_the_job_is_shown_on_its_terminals_only(run: Run) -> None:
    agent = run()
    begin(agent)
    agent.send(OpenShell(1, 1, 1, ("cat",), tty=True))
    agent.send(OpenShell(2, 1, 1, ("cat",)))
    give(agent, b"there\n")
    eventually(lambda: b"there" in output(agent))
    agent.send(Note(1, 1, "its GPUs have been idle for 30m00s"))
    eventually(lambda: b"\r\ncorral: its GPUs have been idle for 30m00s\r\n" in output(agent))
    assert output(agent, request=2) == b""


def test_exec_session_without_a_command_is_a_shell(run: Run) -> None:
    agent = run()
    begin(agent)
    agent.send(OpenShell(1, 1, 1, (), tty=True))
    give(agent, b"echo $((6*7)); exit 5\n")
    assert ended(agent).code == 5
    assert b"42" in output(agent)


def test_messages_of_pmi_wait_until_the_command_reads_them(run: Run, tmp_path: Path) -> None:
    """The messages are larger than the buffer of the command's socket."""
    agent = run()
    begin(agent)
    data = os.urandom(1 << 21)
    reads = (
        "import hashlib, os, socket, time\n"
        "pmi, data = socket.socket(fileno=int(os.environ['PMI_FD'])), b''\n"
        f"while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.05)\n"
        f"while len(data) < {len(data)}: data += pmi.recv(1 << 16)\n"
        "print(hashlib.sha256(data).hexdigest())"
    )
    agent.send(OpenShell(1, 1, 1, (sys.executable, "-c", reads), step=True, pmi=True))
    for start in range(0, len(data), 1 << 16):
        part = b64encode(data[start : start + (1 << 16)]).decode()
        agent.send(ShellInput(1, part, pmi=True))
    agent.log(1)  # the agent has handled all messages
    (tmp_path / "go").touch()
    eventually(lambda: output(agent))
    assert output(agent).decode().strip() == hashlib.sha256(data).hexdigest()
    assert ended(agent).code == 0


@pytest.mark.parametrize("how", ["stop", "close", "leave"])
def test_exec_session_ends_with_its_job_its_reader_and_its_agent(run: Run, how: str) -> None:
    agent = run()
    begin(agent)
    deaf = "trap '' HUP TERM; setsid sleep 1000 & echo $$ $!; wait"
    agent.send(OpenShell(1, 1, 1, ("sh", "-c", deaf), tty=True))
    first, second = map(int, eventually(lambda: output(agent).split()))
    {
        "stop": lambda: agent.send(Stop(1, 1)),
        "close": lambda: agent.send(CloseShell(1)),
        "leave": agent.disconnect,
    }[how]()
    eventually(lambda: not alive(first) and not alive(second))
    if how == "stop":
        assert agent.ended(1).why == "cancelled"
        assert ended(agent).signal == signal.SIGKILL
        assert ended(agent).error == "the job has ended, and the command with it"
        agent.send(Settle(1, 1))
    if how == "close":
        assert alive(agent.started(1).pid or 0)


def test_fast_exec_output_waits_for_its_reader(run: Run) -> None:
    agent = run()
    begin(agent)
    agent.send(OpenShell(1, 1, 1, ("yes",)))
    eventually(lambda: len(output(agent)) == 1 << 20)
    agent.log(1)  # a whole round with the agent: nothing more has come
    assert len(output(agent)) == 1 << 20
    agent.send(ShellTaken(1, 1_000))
    eventually(lambda: len(output(agent)) == (1 << 20) + 1_000)
    agent.send(CloseShell(1))
    ended(agent)


def test_acknowledged_bytes_that_were_not_sent_give_no_credit(run: Run) -> None:
    agent = run()
    begin(agent)
    agent.send(OpenShell(1, 1, 1, ("sh", "-c", "read x; yes"), step=True))
    agent.send(ShellTaken(1, 1 << 30), ShellTaken(1, -(1 << 30)))
    give(agent, b"go\n")
    eventually(lambda: len(output(agent)) >= 256 << 10)
    agent.log(1)  # a whole round with the agent: nothing more has come
    assert len(output(agent)) == 256 << 10
    agent.send(CloseShell(1))
    ended(agent)


def test_wrong_messages_for_a_task_do_not_end_the_agent(run: Run) -> None:
    agent = run()
    begin(agent)
    agent.send(OpenShell(1, 1, 1, ("cat",), step=True), OpenShell(2, 1, 1, ("cat",), step=True))
    agent.send(ShellSignal(1, "NO-SUCH"), ShellInput(2, "a"))
    assert "not valid base64" in ended(agent, 2).error
    give(agent, b"there", end=True)
    assert ended(agent).code == 0
    assert output(agent) == b"there"


def test_a_task_that_does_not_read_its_input_is_ended(run: Run) -> None:
    agent = run()
    begin(agent)
    agent.send(OpenShell(1, 1, 1, ("sleep", "1000"), step=True))
    for _ in range(18):
        give(agent, b"x" * (1 << 20))
    assert "had not read 16 MiB of its input" in ended(agent).error


def test_much_input_of_corral_exec_waits_for_the_command(run: Run, tmp_path: Path) -> None:
    agent = run()
    begin(agent)
    os.mkfifo(tmp_path / "go")
    agent.send(OpenShell(1, 1, 1, ("sh", "-c", f"cat {tmp_path}/go; wc -c")))
    for _ in range(18):
        give(agent, b"x" * (1 << 20))
    give(agent, b"", end=True)
    (tmp_path / "go").write_text("")
    assert ended(agent).error == ""
    assert int(output(agent)) == 18 << 20


def test_one_attempt_has_a_limit_of_tasks_from_other_nodes(run: Run) -> None:
    agent = run()
    begin(agent)
    agent.send(*(OpenShell(number, 1, 1, ("sleep", "1000"), step=True) for number in range(1, 258)))
    assert ended(agent, 257).error.startswith("256 tasks of job 1 that srun has started from other nodes run")
    agent.send(OpenShell(300, 1, 1, ("true",)))
    assert ended(agent, 300).code == 0, "the limit does not count for corral exec"


def test_a_descriptor_above_1023_can_be_awaited() -> None:
    """512 tasks of srun have about 1,800 descriptors, and select.select() refuses those above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    source, sink = os.pipe()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        high = fcntl.fcntl(source, fcntl.F_DUPFD, 1_024)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not await_readable(high)
    os.write(sink, b"x")
    assert await_readable(high)
    for each in (source, sink, high):
        os.close(each)


def test_exec_session_is_refused_without_a_running_job(run: Run) -> None:
    agent = run()
    agent.send(OpenShell(1, 1, 1, ("true",)))
    assert ended(agent).error == "attempt 1 of job 1 does not run on this node"
    agent.start(1, "true")
    agent.ended(1)
    agent.send(OpenShell(2, 1, 1, ("true",)))
    assert ended(agent, 2).error == "attempt 1 of job 1 does not run on this node"


def test_exec_session_that_cannot_start_reports_the_cause(run: Run) -> None:
    agent = run()
    begin(agent)
    agent.send(OpenShell(1, 1, 1, ("no-such-program",)))
    assert ended(agent).code == 127
    assert output(agent, "stderr").startswith(b"corral: cannot run no-such-program: not found in PATH (")


def test_exec_session_has_the_limits_and_cpus_of_its_job(run: Run) -> None:
    agent = run()
    found = cgroup_detection.detect("auto", cgroup_detection.cgroup_tag("gpu01", agent.spool))
    begin(agent)
    look = "cat /proc/self/cgroup; grep Cpus_allowed_list /proc/self/status"
    agent.send(OpenShell(1, 1, 1, ("sh", "-c", look)))
    assert ended(agent).code == 0
    allowed = output(agent).decode().splitlines()[-1].split()[1]
    supervisor = os.sched_getaffinity(agent.supervisor(1))
    assert allowed == ",".join(map(str, sorted(supervisor))) or len(supervisor) > 1
    if found.limited:
        assert b"/1.1\n" in output(agent)


@users.as_other_users
def test_exec_session_runs_as_the_user_of_the_job(run: Run) -> None:
    other = pwd.getpwnam("nobody")
    agent = run(run_as_self=False)
    begin(agent, user=other.pw_name)
    agent.send(OpenShell(1, 1, 1, ("sh", "-c", "id -u; id -g; id -G; echo x > /dev/tty"), tty=True))
    assert ended(agent).code == 0
    uid, gid, groups, x = output(agent).decode().splitlines()
    assert (int(uid), int(gid), x) == (other.pw_uid, other.pw_gid, "x")
    assert [*map(int, groups.split())] == os.getgrouplist(other.pw_name, other.pw_gid)
