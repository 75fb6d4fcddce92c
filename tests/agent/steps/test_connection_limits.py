"""Limits on connections of srun to the agent. The server of the socket runs in the process of the test."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.attempts.spool import Spool
from agent.controller_channel import BUSY_BYTES, Channel
from agent.event_loop import EventLoop
from agent.processes.process_marks import mark_code
from agent.steps import step_server
from agent.steps.records import StepRecords
from agent.steps.step_server import StepServer
from tests.agent.agent_process import eventually
from wire.agent.frames import Frame, pack, unpack
from wire.agent.orders import ShellInput, ShellSignal
from wire.agent.reports import ShellOutput
from wire.agent.steps import OpenTask, StepCall, StepHello, StepNumber, socket_path
from wire.job.steps import Step

KEY = "k" * 32
HELLO = StepHello("1.1", mark_code(KEY, "1.1", os.geteuid()))


@dataclass
class Served:
    """A step server, and the pipe to its controller."""

    loop: EventLoop
    server: StepServer
    channel: Channel
    sent: int
    path: str
    rank: int = 0

    def connect(self, *frames: Frame) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        folder, name = os.path.split(self.path)
        directory = os.open(folder, os.O_PATH)
        sock.connect(f"/proc/self/fd/{directory}/{name}")
        os.close(directory)
        sock.setblocking(False)
        sock.sendall(b"".join(map(pack, frames)))
        return sock

    def until(self, happened: Callable[[], object]) -> None:
        """Run the agent until the condition is true."""

        def look() -> bool:
            self.loop.run_once(sleep=False)
            self.server.resume()
            return bool(happened())

        eventually(look)

    def is_closed(self, sock: socket.socket) -> bool:
        try:
            return sock.recv(1 << 16) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    def for_controller(self) -> list[Frame]:
        """Read what the agent has sent to the controller since the last call."""
        data = b""
        while self.channel.unsent_bytes:
            self.channel.flush()
            data += os.read(self.sent, 1 << 20)
        return [unpack(line) for line in data.splitlines()]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    source, _ = os.pipe()
    sent, sink = os.pipe()
    loop, channel, spool = EventLoop(), Channel(source, sink), Spool(tmp_path, "boot")
    (tmp_path / "attempts" / "1.1").mkdir(parents=True, exist_ok=True)
    records = StepRecords(spool, loop, channel.send, lambda key: False)
    server = StepServer(
        str(tmp_path),
        loop,
        records,
        channel,
        lambda key: made.rank if key == (1, 1) else None,
        lambda key: [os.getpid()],
        lambda key, step: None,
    )
    server.mark_key = KEY
    made = Served(loop, server, channel, sent, socket_path(str(tmp_path), os.geteuid()))
    server.listen()
    yield made
    Path(made.path).unlink()


@pytest.mark.parametrize("wrong", [ShellSignal(7, "NO-SUCH"), ShellInput(7, "a"), ShellInput(7, "\u00e9")])
def test_a_message_that_another_agent_cannot_carry_out_closes_the_connection(
    served: Served, wrong: Frame
) -> None:
    sock = served.connect(HELLO, OpenTask(7, 1, 1, "gpu02", ("cat",)), wrong)
    served.until(lambda: served.is_closed(sock))
    assert [type(each).__name__ for each in served.for_controller()] == ["OpenTask", "CloseShell"]


def test_srun_is_not_read_while_the_controller_reads_too_slowly(served: Served) -> None:
    sock = served.connect(HELLO, OpenTask(7, 1, 1, "gpu02", ("cat",)))
    given, left = 0, memoryview(pack(ShellInput(7, "A" * 30_000)) * 200)
    for _ in range(2_000):
        served.loop.run_once(sleep=False)
        served.server.resume()
        try:
            given += sock.send(left[given:])
        except BlockingIOError:
            continue
    assert BUSY_BYTES < served.channel.unsent_bytes < BUSY_BYTES + (1 << 17)
    assert given < len(left)
    read: list[Frame] = []

    def all_read() -> bool:
        nonlocal given
        read.extend(served.for_controller())
        with suppress(BlockingIOError):
            given += sock.send(left[given:])
        return sum(isinstance(each, ShellInput) for each in read) == 200

    served.until(all_read)


def test_a_connection_that_has_proved_nothing_may_not_send_much(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_server, "_UNPROVED_S", 1_000.0)
    sock = served.connect()
    sock.sendall(b"x" * 4_095)
    served.loop.run_once()
    served.loop.run_once()
    assert not served.is_closed(sock)
    sock.sendall(b"x")
    served.until(lambda: served.is_closed(sock))


def test_a_connection_that_proves_nothing_is_closed_in_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_server, "_UNPROVED_S", 0.01)
    mine = served.connect(HELLO, StepCall(1, 1, 1, Step()))
    served.until(lambda: _has_answer(mine))
    mine.recv(1 << 16)
    idle = [served.connect() for _ in range(2)]
    for each in idle:
        served.until(lambda each=each: served.is_closed(each))
    assert not served.is_closed(mine)


def test_an_attempt_has_a_limit_of_connections_and_srun_is_told_so(served: Served) -> None:
    held = [served.connect(HELLO) for _ in range(100)]
    served.until(lambda: len(served.server._connections) == 100)
    held += [served.connect(HELLO) for _ in range(28)]
    served.until(lambda: sum(each.key == (1, 1) for each in served.server._connections) == 128)
    sock = served.connect(HELLO, StepCall(9, 1, 1, Step()))
    served.until(lambda: len(served.server._connections) == 128 and _has_answer(sock))
    said = unpack(sock.recv(1 << 16).rstrip())
    assert isinstance(said, StepNumber)
    assert said.error == "128 srun commands of job 1 run on this node already; wait until one has ended"
    assert served.is_closed(sock)
    held.pop().close()
    served.until(lambda: len(served.server._connections) == 127)
    after = served.connect(HELLO, StepCall(9, 1, 1, Step()))
    served.until(lambda: _has_answer(after))
    assert unpack(after.recv(1 << 16).rstrip()) == StepNumber(9, 0)


def _has_answer(sock: socket.socket) -> bool:
    with suppress(BlockingIOError):
        return sock.recv(1, socket.MSG_PEEK) != b""
    return False


def test_a_process_of_another_host_is_not_recorded(served: Served) -> None:
    """The pid of another host may be the pid of any process here."""
    served.rank = 1
    served.connect(HELLO, StepCall(9, 1, 1, Step(pid=12, pid_ticks=34)))
    served.until(lambda: served.channel.unsent_bytes)
    [call] = served.for_controller()
    assert isinstance(call, StepCall)
    assert (call.step.pid, call.step.pid_ticks) == (0, 0)
    served.rank = 0
    served.server.take_call(StepCall(3, 1, 1, Step(name="far", pid=12, pid_ticks=34)))
    report = served.for_controller()[0]
    assert '"pid":0,"pid_ticks":0' in pack(report).decode()


def test_output_of_many_tasks_may_wait_for_srun(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_server, "_UNREAD_BYTES", 1 << 20)
    tasks = [OpenTask(number, 1, 1, "gpu02", ("cat",)) for number in range(8)]
    sock = served.connect(HELLO, *tasks)
    opened: list[Frame] = []
    served.until(lambda: opened.extend(served.for_controller()) or len(opened) == 8)  # type: ignore[func-returns-value]
    for task in opened:
        assert isinstance(task, OpenTask)
        served.server.take_answer(ShellOutput(task.request, "A" * (349_528)))
    assert len(served.server._connections) == 1, "each task has sent 256 KiB"
    served.server.take_answer(ShellOutput(opened[0].request, "A" * (4 << 20)))  # type: ignore[union-attr]
    assert not served.server._connections
    sock.close()


def test_messages_after_the_end_of_a_connection_are_not_handled(served: Served) -> None:
    sock = served.connect(HELLO, StepCall(1, 1, 1, Step()), OpenTask(7, 1, 1, "gpu02", ("cat",)))
    sock.close()
    served.loop.run_once()
    served.until(lambda: not served.server._connections)
    assert not any(isinstance(each, OpenTask) for each in served.for_controller())
    assert not served.server._requests


def test_calls_that_the_controller_does_not_answer_are_limited(served: Served) -> None:
    served.rank = 1
    most = step_server._MOST_UNANSWERED
    sock = served.connect(HELLO, *(StepCall(0, 0, 0, Step()) for _ in range(most + 5)))
    passed: list[Frame] = []
    served.until(lambda: passed.extend(served.for_controller()) or len(passed) >= most)
    sock.sendall(pack(StepCall(9, 0, 0, Step())))
    served.until(lambda: readable(sock))
    refused = unpack(sock.recv(1 << 16).rstrip())
    assert isinstance(refused, StepNumber)
    assert (refused.request, len(passed)) == (9, most)
    assert refused.error == f"{most} messages about steps wait for an answer of the controller"
    for each in passed:
        assert isinstance(each, StepCall)
        served.server.take_answer(StepNumber(each.request, 3))
    sock.sendall(pack(StepCall(10, 0, 0, Step())))
    served.until(lambda: served.for_controller())


def readable(sock: socket.socket) -> bool:
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
