"""Tasks of srun from other nodes: they run as the user of the job, and outlive the agent."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.attempts.launch.launch_spec import LaunchSpec
from agent.steps import task_host
from tests import users
from tests.agent.agent_process import AgentProcess, alive, eventually
from tests.limits import PATIENCE_S
from wire.agent.frames import Frame, pack, unpack
from wire.agent.orders import CloseShell, OpenShell, ShellInput, ShellTaken, Stop
from wire.agent.reports import ShellEnded, ShellOutput
from wire.agent.steps import InputTaken

Run = Callable[..., AgentProcess]
SLEEPS = ("sleep", "1000")


def task(request: int, *command: str, name: str = "a.0", **more: object) -> OpenShell:
    return OpenShell(request, 1, 1, command, step=True, task=name, **more)  # type: ignore[arg-type]


def typed(request: int, data: bytes, *, end: bool = False) -> ShellInput:
    return ShellInput(request, b64encode(data).decode(), end)


def output(agent: AgentProcess, request: int, size: int) -> bytes:
    """The first `size` bytes of output that the agent has sent for a request."""

    def read(said: list[Frame]) -> bytes | None:
        found = b"".join(
            b64decode(each.data) for each in said if isinstance(each, ShellOutput) and each.request == request
        )
        return found if len(found) >= size else None

    return agent.until(read)


def ended(agent: AgentProcess, request: int) -> ShellEnded:
    return agent.until(
        lambda said: next(
            (each for each in said if isinstance(each, ShellEnded) and each.request == request), None
        )
    )


def running(run: Run, **order: object) -> AgentProcess:
    agent = run()
    agent.start(1, *SLEEPS, **order)
    agent.started(1)
    return agent


def test_a_task_goes_on_without_its_agent(run: Run) -> None:
    first = running(run)
    first.send(task(1, "sh", "-c", "echo $$; cat; exit 4"), typed(1, b"one\n"))
    pid = int(output(first, 1, 6).split()[0])
    first.kill()
    second = run()
    second.send(task(7, resume=True, received=len(str(pid)) + 1), typed(7, b"two\n", end=True))
    assert output(second, 7, 8) == b"one\ntwo\n", "what srun has not received is sent again"
    assert (ended(second, 7).code, ended(second, 7).error) == (4, "")
    second.kill()
    third = run()
    third.send(task(3, resume=True, received=len(str(pid)) + 1))
    assert output(third, 3, 8) == b"one\ntwo\n"
    assert ended(third, 3).code == 4, "the end of a task is kept"


def test_acknowledged_output_is_not_kept(run: Run) -> None:
    agent = running(run)
    agent.send(task(1, "sh", "-c", "head -c 1000000 /dev/zero; echo end; sleep 1000"))
    got = 256 << 10
    output(agent, 1, got)
    agent.send(ShellTaken(1, got))
    assert len(output(agent, 1, 2 * got)) == 2 * got, "the window is as large as what was acknowledged"
    agent.send(CloseShell(1, keep=True), task(2, resume=True, received=2 * got), ShellTaken(2, 0))
    assert output(agent, 2, got) == bytes(got)


def test_a_task_that_was_not_started_is_not_resumed(run: Run) -> None:
    agent = running(run)
    agent.send(task(1, resume=True), task(2, "true", name="b.0"), task(3, name="c.0", resume=True))
    assert "was killed" in ended(agent, 1).error
    assert ended(agent, 2).code == 0
    assert "was killed" in ended(agent, 3).error


def test_input_beyond_the_window_ends_the_task(run: Run) -> None:
    """srun sends at most STEP_INPUT_WINDOW bytes, but the user can change srun."""
    agent = running(run)
    agent.send(task(1, *SLEEPS), *(typed(1, bytes(1 << 18)) for _ in range(8)))
    assert "too much input" in ended(agent, 1).error
    agent.send(task(2, "cat", name="b.0"), typed(2, b"x" * 1_000, end=True))
    assert output(agent, 2, 1_000) == b"x" * 1_000
    agent.until(lambda said: InputTaken(2, 1_000) in said)


def test_tasks_end_with_the_job(run: Run) -> None:
    first = running(run)
    first.send(task(1, "sh", "-c", "setsid sleep 1000 & echo $$ $!; wait"))
    pids = [int(word) for word in output(first, 1, 4).split()]
    first.kill()
    second = run()
    second.send(Stop(1, 1, grace_s=1.0))
    second.ended(1)
    eventually(lambda: not any(map(alive, pids)))


def test_a_killed_task_host_is_reported(run: Run) -> None:
    agent = running(run)
    agent.send(task(1, "sh", "-c", "echo $PPID; sleep 1000"))
    os.kill(int(output(agent, 1, 3)), signal.SIGKILL)
    assert "was killed" in ended(agent, 1).error
    agent.send(task(2, "echo", "again", name="b.0"))
    assert output(agent, 2, 6) == b"again\n", "another one is started"


@users.as_other_users
@pytest.mark.parametrize("restarted", [False, True])
def test_tasks_run_as_the_user_of_the_job(run: Run, restarted: bool) -> None:
    user = pwd.getpwnam("daemon")
    agent = run(run_as_self=False)
    agent.start(1, *SLEEPS, user=user.pw_name)
    agent.started(1)
    if restarted:
        agent.send(task(1, *SLEEPS))
        agent.until(lambda said: InputTaken(1) in said)
        agent.kill()
        agent = run(run_as_self=False)
    agent.send(task(5, "sh", "-c", "id -u; cat /proc/$PPID/environ", name="b.0"))
    assert ended(agent, 5).code == 1, "the task cannot read the environment of the task host"
    assert output(agent, 5, 1).split()[0] == str(user.pw_uid).encode()


def test_the_end_of_a_task_is_found_without_the_checks_of_an_idle_task_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_host, "_IDLE_CHECK_S", 1e6)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as sock:
        listener.bind(str(tmp_path / task_host.SOCKET))
        listener.listen()
        sock.settimeout(PATIENCE_S)
        sock.connect(str(tmp_path / task_host.SOCKET))
        host = threading.Thread(target=task_host.TaskHost(listener, str(tmp_path)).run)
        host.start()
        with sock.makefile("rb") as answers:
            for request in (1, 2):  # the second one begins when no task runs
                launch = LaunchSpec("1.1", str(tmp_path))
                launch.argv, launch.env = ["sh", "-c", "exit 3"], dict(os.environ)
                spec = task_host.SPEC + b64encode(launch.pack()) + b"\n"
                sock.sendall(spec + pack(task(request, "true", name=f"a.{request}")))
                frames = (unpack(line) for line in answers)
                found = next(frame for frame in frames if isinstance(frame, ShellEnded))
                assert (found.request, found.code, found.error) == (request, 3, "")
            sock.sendall(task_host.END + b"the job has ended\n")
        host.join(PATIENCE_S)
        assert not host.is_alive()
