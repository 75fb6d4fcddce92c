"""A gang member prepares its start, reports ready, and starts on the go order."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.agent_process import AgentProcess, eventually
from wire.agent.orders import Go, Stop
from wire.agent.reports import AttemptStatus

Run = Callable[..., AgentProcess]


def waiting(agent: AgentProcess, *command: str, **order: object) -> AttemptStatus:
    """A member that is ready."""
    agent.start(1, *command, barrier=True, nodes=2, **order)
    return agent.until(lambda _: next((each for each in agent.reports(1) if each.ready), None))


def test_member_starts_on_go_and_ignores_a_second_one(run: Run, tmp_path: Path) -> None:
    agent = run()
    waiting_status = waiting(agent, "sh", "-c", f"touch {tmp_path}/ran; sleep 1000")
    assert (waiting_status.pid, waiting_status.started_at) == (None, None)
    assert not (tmp_path / "ran").exists()
    agent.send(Go(1, 1), Go(1, 1))
    agent.started(1)
    agent.send(Go(1, 1))
    eventually((tmp_path / "ran").exists)
    os.kill(agent.supervisor(1), signal.SIGTERM)  # a go order that arrives late
    agent.send(Stop(1, 1, why="asked"))
    assert agent.ended(1).why == "asked"


@pytest.mark.parametrize(
    ("order", "why"),
    [
        ({"workdir": "/no/such/place"}, "cannot enter the working directory /no/such/place"),
        ({"env": {"PATH": "/nowhere"}}, "cannot run true: not found in PATH"),
    ],
)
def test_member_that_cannot_start_is_never_ready(run: Run, order: dict[str, object], why: str) -> None:
    agent = run()
    agent.start(1, "true", barrier=True, nodes=2, **order)
    ended = agent.ended(1)
    assert ended.why.startswith(f"launch_failed: {why}")
    assert not ended.ready


def test_member_can_be_stopped_while_it_waits(run: Run, tmp_path: Path) -> None:
    agent = run()
    waiting(agent, "touch", f"{tmp_path}/ran")
    agent.send(Stop(1, 1, why="member_failed"))
    ended = agent.ended(1)
    assert (ended.why, ended.pid) == ("member_failed", None)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("word", ["stop", "go"])
def test_go_that_could_not_be_recorded_is_recorded_later(run: Run, word: str) -> None:
    """Block the file for a moment, as a full disk would."""
    agent = run()
    waiting(agent, "true")
    blocked = agent.spool / "attempts" / "1.1" / {"stop": ".stop", "go": "go"}[word]
    if word == "go":
        blocked.symlink_to("/nowhere/at/all")
    else:
        blocked.mkdir()
    agent.send({"stop": Stop(1, 1, why="cancelled"), "go": Go(1, 1)}[word])
    eventually(lambda: "failed: " in agent.stderr_text)
    assert agent.reports(1)[-1].ended_at is None
    blocked.unlink() if word == "go" else blocked.rmdir()
    assert agent.ended(1).why == {"stop": "cancelled", "go": ""}[word]


def test_member_keeps_waiting_without_an_agent(run: Run) -> None:
    first = run()
    waiting(first, "true")
    first.kill()
    second = run()
    (status,) = second.hello().attempts
    assert status.ready
    assert status.pid is None
    second.send(Go(1, 1))
    assert second.ended(1).code == 0


def test_recorded_go_counts_although_the_agent_died_before_the_signal(run: Run) -> None:
    first = run()
    waiting(first, "true")
    supervisor = first.supervisor(1)
    os.kill(supervisor, signal.SIGSTOP)
    first.send(Go(1, 1))
    eventually((first.spool / "attempts" / "1.1" / "go").exists)
    first.kill()
    os.kill(supervisor, signal.SIGCONT)
    second = run()
    status = next((each for each in second.hello().attempts if each.ended_at), None) or second.ended(1)
    assert status.code == 0


@pytest.fixture(params=["IPv4", "IPv6", "connection"])
def busy(request: pytest.FixtureRequest) -> Iterator[int]:
    """A port of this host on which a process listens, or from which it is connected."""
    family = socket.AF_INET6 if request.param == "IPv6" else socket.AF_INET
    with socket.socket(family) as server, socket.socket() as client:
        try:
            server.bind(("", 0))
        except OSError:
            pytest.skip("this host has no IPv6")
        server.listen()
        if request.param == "connection":
            client.connect(("127.0.0.1", server.getsockname()[1]))
        yield (client if request.param == "connection" else server).getsockname()[1]


def test_first_member_checks_that_its_port_is_free(run: Run, busy: int, tmp_path: Path) -> None:
    agent, port = run(), {"MASTER_PORT": str(busy)}
    agent.start(1, "touch", str(tmp_path / "ran"), barrier=True, nodes=2, env=port)
    assert agent.ended(1).why == f"port_in_use: MASTER_PORT {busy} is in use on this host"
    assert not (tmp_path / "ran").exists()
    agent.start(2, "true", barrier=True, nodes=2, rank=1, env=port)  # the port of another host
    agent.until(lambda _: next((each for each in agent.reports(2) if each.ready), None))


def test_port_taken_while_the_gang_waits_is_detected(run: Run, tmp_path: Path) -> None:
    agent = run()
    with socket.socket() as other:
        other.bind(("", 0))  # a port without a listener is in no table of the kernel
        port = other.getsockname()[1]
        waiting(agent, "touch", str(tmp_path / "ran"), env={"MASTER_PORT": str(port)})
        other.listen()
        agent.send(Go(1, 1))
        assert agent.ended(1).why == f"port_in_use: MASTER_PORT {port} is in use on this host"
    assert not (tmp_path / "ran").exists()


def test_processes_of_one_node_get_a_free_port(run: Run, busy: int) -> None:
    agent = run()
    serve = (
        "import os, socket; s = socket.socket(); s.bind(('', int(os.environ['MASTER_PORT']))); s.listen(); "
        "print(os.environ['MASTER_PORT'])"
    )
    agent.start(1, sys.executable, "-c", serve, env={"MASTER_PORT": str(busy)})
    assert agent.ended(1).code == 0, agent.log(1, "stderr")
    assert int(agent.log(1)) != busy
