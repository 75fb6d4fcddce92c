"""Logs are read exactly, from any position, while they grow, and only as fast as the client reads them."""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.attempts.spool import Spool
from agent.controller_channel import BUSY_BYTES, Channel
from agent.interactive.log_reader import CHUNK_BYTES, LogReader
from tests.agent.agent_process import AgentProcess
from wire.agent.orders import Ping, ReadLog, Settle, StopReading
from wire.agent.reports import LogChunk, Pong

Run = Callable[..., AgentProcess]


def test_log_bytes_are_read_unchanged(run: Run, tmp_path: Path) -> None:
    data = bytes(range(256)) * 5_000 + b"no newline at the end"
    (tmp_path / "data").write_bytes(data)
    agent = run()
    agent.start(1, "cat", str(tmp_path / "data"))
    assert agent.log(1, follow=True) == data
    assert agent.log(1, offset=1_000_000) == data[1_000_000:]
    assert agent.log(1, offset=-30) == data[-30:]
    assert agent.log(1, offset=-(1 << 40)) == data
    assert agent.log(1, offset=1 << 40) == b""
    assert agent.log(1, "stderr") == b""


def test_followed_log_delivers_new_output(run: Run, tmp_path: Path) -> None:
    agent = run()
    first, second = tmp_path / "first", tmp_path / "second"
    os.mkfifo(first)
    os.mkfifo(second)  # the same one twice could be opened again before its writer has closed it
    agent.send(ReadLog(1, 1, 1))
    agent.start(1, "sh", "-c", f"echo one; read -r _ < {first}; echo two; read -r _ < {second}; echo three")
    agent.send(ReadLog(2, 1, 1, follow=True))

    def received(text: bytes) -> Callable[[list[object]], bool]:
        def ask(said: list[object]) -> bool:
            chunks = [each for each in said if isinstance(each, LogChunk) and each.request == 2]
            return b"".join(b64decode(chunk.data) for chunk in chunks) == text

        return ask

    agent.until(
        lambda said: LogChunk(1, end=True, error="this node has no log of attempt 1 of job 1") in said
    )
    agent.until(received(b"one\n"))
    first.write_text("\n")
    agent.until(received(b"one\ntwo\n"))
    second.write_text("\n")
    agent.until(lambda said: LogChunk(2, end=True) in said)
    assert received(b"one\ntwo\nthree\n")(agent.received)


def test_settled_logs_stay_until_retention_takes_them(run: Run) -> None:
    agent = run("--keep", "1")
    agent.start(1, "echo", "first")
    agent.ended(1)
    agent.send(Settle(1, 1))
    assert agent.log(1) == b"first\n"
    agent.start(2, "echo", "second")
    agent.ended(2)
    agent.send(Settle(2, 1), ReadLog(77, 1, 1))
    chunk = agent.until(
        lambda said: next((c for c in said if isinstance(c, LogChunk) and c.request == 77), None)
    )
    assert chunk == LogChunk(77, end=True, error="this node has no log of attempt 1 of job 1")
    agent.kill()
    assert run("--keep", "1").log(2) == b"second\n"


@pytest.mark.parametrize("stream", ["record", "../../lock", "", "stdout/../record", "\0"])
def test_only_log_files_can_be_read(run: Run, stream: str) -> None:
    agent = run()
    agent.start(1, "true")
    agent.ended(1)
    agent.send(ReadLog(1, 1, 1, stream))
    chunk = agent.until(lambda said: next((each for each in said if isinstance(each, LogChunk)), None))
    assert chunk.end
    assert chunk.error == f"there is no stream {stream!r}; choose stdout or stderr"


def test_reader_that_stops_gets_no_more_output(run: Run) -> None:
    agent = run()
    agent.start(1, "sh", "-c", "yes | head -c 50000000; sleep 1000")
    agent.started(1)
    agent.send(ReadLog(1, 1, 1, follow=True))
    agent.until(lambda said: any(isinstance(each, LogChunk) for each in said))
    agent.send(StopReading(1), StopReading(2), Ping(1))
    agent.await_pong(1)
    agent.send(Ping(2))
    agent.await_pong(2)
    pong = next(at for at, each in enumerate(agent.received) if isinstance(each, Pong))
    # It may have something to report of the job meanwhile, but nothing more to read.
    assert not [each for each in agent.received[pong:] if isinstance(each, LogChunk)]


def test_a_slow_controller_costs_no_memory(spool: Path) -> None:
    """While the pipe is not read, reading pauses after a little. It continues when there is room, without
    loss.
    """
    opened = Spool(spool, "boot")
    opened.open()
    key = (1, 1)
    opened.record_order(key, None)
    data = os.urandom(40 * CHUNK_BYTES)
    Path(opened.directory(key), "stdout").write_bytes(data)
    reader, writer = os.pipe()
    channel = Channel(os.open("/dev/null", os.O_RDONLY), writer)
    logs = LogReader(opened, lambda _: True, channel)
    logs.read(ReadLog(1, 1, 1))
    logs.read(ReadLog(2, 1, 1, offset=-CHUNK_BYTES))
    received = b""
    while channel.unsent_bytes or not received:
        logs.send_chunks()
        assert channel.unsent_bytes < BUSY_BYTES + 4 * CHUNK_BYTES
        channel.flush()
        received += os.read(reader, 1 << 20)
    chunks = [line for line in received.split(b"\n") if b'"request":1,' in line]
    assert b"".join(b64decode(line.split(b'"data":"')[1].split(b'"')[0]) for line in chunks) == data
