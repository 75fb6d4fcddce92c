"""The client with a real socket whose other end behaves well, badly, or not at all."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.wire.conftest import MakePeer
from tests.wire.http.peer import CHUNKED, Line, response
from wire.api.forecasts import WhatIf, WhatIfAnswer
from wire.api.jobs import JobList, Submitted
from wire.api.nodes import NodeList
from wire.api.problem import Problem
from wire.api.service.cluster import EventView, Health, StreamBatch
from wire.codec import dumps, encode
from wire.http import transport
from wire.http.client import Client, Refused, Unreachable
from wire.job.spec import JobSpec
from wire.names import JobState

HEALTH = Health("ok", "0.1.0", 1.0, 7, "ada", "user")
SPEC = JobSpec(command=("true",))


def answering(body: Any, status: int = 200) -> Callable[[Line], None]:
    """Answers every request on the connection alike."""

    def script(line: Line) -> None:
        while True:
            line.read()
            line.answer(body, status)

    return script


def once(body: Any) -> Callable[[Line], None]:
    """Answers one request, then closes."""

    def script(line: Line) -> None:
        line.read()
        line.answer(body)

    return script


def hangs_up(line: Line) -> None:
    """Reads a request and closes without an answer."""
    line.read()


def sends(data: bytes) -> Callable[[Line], None]:
    """Reads a request, sends exactly this, and closes."""

    def script(line: Line) -> None:
        line.read()
        line.send(data)

    return script


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the client would have paused before trying again."""
    pauses: list[float] = []
    monkeypatch.setattr(transport.time, "sleep", pauses.append)
    return pauses


def test_one_connection_serves_many_requests(peer: MakePeer) -> None:
    server = peer(answering(HEALTH))
    with Client(server.url) as client:
        assert [client.health() for _ in range(3)] == [HEALTH] * 3
    assert server.connections == 1
    assert [request.target for request in server.requests] == ["/v1/health"] * 3


def test_requests_have_the_form_of_the_api(peer: MakePeer) -> None:
    server = peer(answering(JobList((), 1, 0)))
    with Client(server.url, token="secret") as client:
        client.jobs(states=[JobState.QUEUED, JobState.RUNNING], user="ada&bo", after=3, limit=5)
    [request] = server.requests
    assert request.method == "GET"
    assert request.target == "/v1/jobs?state=QUEUED&state=RUNNING&user=ada%26bo&after=3&limit=5"
    assert request.headers["authorization"] == "Bearer secret"
    assert "content-length" not in request.headers


@pytest.mark.parametrize("name", ["../health", "7/cancel", "a b", "?x=1", "#", "é"])
def test_name_cannot_change_the_path(peer: MakePeer, name: str) -> None:
    server = peer(answering(Problem("not_found", "no such job"), 404))
    with Client(server.url) as client, pytest.raises(Refused):
        client.job(name)
    path = server.requests[0].target.removeprefix("/v1/jobs/")
    assert not set(path) & set("/?# ")
    assert path.isascii()


def test_idle_connection_is_replaced_before_a_request(peer: MakePeer) -> None:
    closed = threading.Event()

    def closes_after_one(line: Line) -> None:
        once(HEALTH)(line)
        line.wire.close()
        closed.set()

    server = peer(closes_after_one, answering(NodeList((), 1)))
    with Client(server.url) as client:
        client.health()
        assert closed.wait(5)
        # Neither question may be sent twice; both arrive, on a new connection.
        client.nodes()
    assert [request.target for request in server.requests] == ["/v1/health", "/v1/nodes"]


def test_order_on_a_closed_idle_connection_is_sent_once(peer: MakePeer) -> None:
    closed = threading.Event()

    def closes_after_one(line: Line) -> None:
        once(HEALTH)(line)
        line.wire.close()
        closed.set()

    server = peer(closes_after_one, answering(Problem("conflict", "over"), 409))
    with Client(server.url) as client:
        client.health()
        assert closed.wait(5)
        with pytest.raises(Refused):
            client.cancel(1)
    assert [request.target for request in server.requests] == ["/v1/health", "/v1/jobs/1/cancel"]


def test_query_is_repeated_when_the_answer_is_lost(peer: MakePeer) -> None:
    server = peer(hangs_up, answering(HEALTH))
    with Client(server.url) as client:
        assert client.health() == HEALTH
    assert server.connections == 2


def test_lost_what_if_is_not_reported_as_possibly_carried_out(peer: MakePeer) -> None:
    server = peer(hangs_up)
    with Client(server.url) as client, pytest.raises(Unreachable) as caught:
        client.what_if(WhatIf(cancel=(1,)))
    assert "carried out" not in caught.value.hint
    assert len(server.requests) == 2, "a question may be asked again"


def test_what_if_sends_its_time_limit(peer: MakePeer) -> None:
    server = peer(answering(WhatIfAnswer(1.0, (), 3)))
    with Client(server.url) as client:
        client.what_if(WhatIf(cancel=(1,)), within_s=5, only_first=True)
        client.what_if(WhatIf(cancel=(1,)))
    targets = [request.target for request in server.requests]
    assert targets == ["/v1/what-if?within=5&part=first", "/v1/what-if"]


def test_order_is_not_repeated_when_the_answer_is_lost(peer: MakePeer) -> None:
    server = peer(hangs_up, answering(HEALTH))
    with Client(server.url) as client, pytest.raises(Unreachable) as caught:
        client.cancel(1)
    assert "may have been carried out" in caught.value.hint
    assert len(server.requests) == 1


def test_submit_is_repeated_with_the_same_key(peer: MakePeer) -> None:
    server = peer(hangs_up, hangs_up, answering(Submitted((5,), "5"), 201))
    with Client(server.url) as client:
        assert client.submit(SPEC, as_user="bo") == Submitted((5,), "5")
    bodies = [json.loads(request.body) for request in server.requests]
    assert len(bodies) == 3
    assert len(bodies[0]["key"]) >= 16
    assert bodies[0] == bodies[1] == bodies[2]
    assert bodies[0]["as_user"] == "bo"


def test_submit_is_given_up_after_its_retries(peer: MakePeer, no_pauses: list[float]) -> None:
    server = peer(hangs_up)
    with Client(server.url) as client, pytest.raises(Unreachable) as caught:
        client.submit(SPEC, key="mine")
    assert {json.loads(request.body)["key"] for request in server.requests} == {"mine"}
    assert len(server.requests) == len(no_pauses) + 1
    assert "may have been carried out" in caught.value.hint


def test_two_submits_make_two_jobs(peer: MakePeer) -> None:
    server = peer(answering(Submitted((5,), "5"), 201))
    with Client(server.url) as client:
        client.submit(SPEC)
        client.submit(SPEC)
    first, second = (json.loads(request.body)["key"] for request in server.requests)
    assert first != second


def test_refusal_carries_the_problem(peer: MakePeer) -> None:
    problem = Problem("never_fits", "too many GPUs", "spec.gpus", "ask for fewer")
    server = peer(answering(problem, 422))
    with Client(server.url) as client, pytest.raises(Refused) as caught:
        client.submit(SPEC)
    assert (caught.value.status, caught.value.problem) == (422, problem)
    assert len(server.requests) == 1


def test_stopping_controller_counts_as_unreachable(peer: MakePeer) -> None:
    server = peer(answering(Problem("stopping", "the controller is shutting down", hint="Wait."), 503))
    with Client(server.url) as client, pytest.raises(Unreachable, match="shutting down") as caught:
        client.health()
    assert caught.value.hint == "Wait."


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\xff\xfe nonsense",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000 + b"\r\n\r\n",
        response(b"<html>Welcome to nginx</html>"),
        response(b"<html>Not found</html>", 404),
        response(b"", 502),
        response(b"", 301),
        response(b"null"),
        response(b"\xff\xfe"),
        response(b"[" * 100_000),
        response(b'{"status": ' + b"9" * 5_000 + b"}"),
        response({"status": "ok"}),
        response({**encode(HEALTH), "seq": "7"}),
        response({**encode(HEALTH), "surprise": 1}),
    ],
    ids=lambda data: repr(data[:40]),
)
def test_answer_that_is_not_from_corral_is_unreachable(peer: MakePeer, data: bytes) -> None:
    server = peer(sends(data))
    with Client(server.url) as client, pytest.raises(Unreachable) as caught:
        client.health()
    assert caught.value.url == server.url
    assert caught.value.why
    assert caught.value.hint


def test_too_slow_answer_is_unreachable_and_not_repeated(peer: MakePeer) -> None:
    done = threading.Event()

    def never_answers(line: Line) -> None:
        line.read()
        done.wait(10)

    server = peer(never_answers)
    with Client(server.url, timeout_s=0.05) as client, pytest.raises(Unreachable, match="no answer within"):
        client.health()
    done.set()
    assert len(server.requests) == 1


def test_failed_connection_is_not_reused(peer: MakePeer) -> None:
    server = peer(sends(b"nonsense\r\n\r\n"), sends(b"nonsense\r\n\r\n"), answering(HEALTH))
    with Client(server.url) as client:
        with pytest.raises(Unreachable):
            client.health()
        assert client.health() == HEALTH


# --- answers without end ---


def batch(seq: int) -> StreamBatch:
    """A commit with one event."""
    return StreamBatch(seq, (EventView(seq, 1.5, "JobQueued", "job é queued", job=seq),))


def event_bytes(each: StreamBatch) -> bytes:
    """A commit as the server writes it."""
    return f"id: {each.seq}\ndata: {dumps(encode(each))}\n\n".encode()


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_stream_is_parsed_however_it_is_split(peer: MakePeer, size: int) -> None:
    text = b": hello\n\n" + event_bytes(batch(1)) + b":\n\n" + event_bytes(batch(2)) + b"retry: 5\n\n"

    def script(line: Line) -> None:
        line.read()
        line.send(CHUNKED)
        for start in range(0, len(text), size):
            line.chunk(text[start : start + size])
        line.chunk(b"")

    server = peer(script)
    with Client(server.url) as client:
        assert list(client.stream(after=0)) == [None, batch(1), None, batch(2)]
    assert server.requests[0].target == "/v1/stream?rows=1&after=0"


def test_windows_line_endings_and_split_data_are_parsed(peer: MakePeer) -> None:
    data = dumps(encode(batch(1)))
    cut = data.index(",")
    text = f"data:{data[:cut]}\r\ndata: {data[cut:]}\r\n\r\n".encode()

    def script(line: Line) -> None:
        line.read()
        line.send(CHUNKED)
        line.chunk(text)
        line.chunk(b"")

    with Client(peer(script).url) as client:
        assert list(client.stream(rows=False)) == [batch(1)]


def test_stream_from_now_sends_no_position(peer: MakePeer) -> None:
    server = peer(sends(CHUNKED + b"0\r\n\r\n"))
    with Client(server.url) as client:
        assert list(client.stream()) == []
    assert server.requests[0].target == "/v1/stream?rows=1"


def test_cut_stream_delivers_its_events_and_then_fails(peer: MakePeer) -> None:
    def script(line: Line) -> None:
        line.read()
        line.send(CHUNKED)
        line.chunk(event_bytes(batch(1)))
        line.chunk(event_bytes(batch(2))[:20])

    with Client(peer(script).url) as client:
        commits = client.stream(after=0)
        assert next(commits) == batch(1)
        with pytest.raises(Unreachable, match="connection was lost"):
            next(commits)


def test_silent_stream_is_lost(peer: MakePeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wire.http.calls.service_calls.SILENCE_S", 0.05)
    done = threading.Event()

    def script(line: Line) -> None:
        line.read()
        line.send(CHUNKED)
        done.wait(10)

    with Client(peer(script).url) as client, pytest.raises(Unreachable, match="no answer within"):
        list(client.stream())
    done.set()


def test_invalid_stream_data_is_unreachable(peer: MakePeer) -> None:
    def script(line: Line) -> None:
        line.read()
        line.send(CHUNKED)
        line.chunk(b"data: {}\n\n")
        line.read()

    with Client(peer(script).url) as client, pytest.raises(Unreachable, match="not a StreamBatch"):
        next(client.stream())


def test_close_wakes_a_reading_thread(peer: MakePeer) -> None:
    def script(line: Line) -> None:
        line.read()
        line.send(CHUNKED)
        line.chunk(b":\n\n")
        line.read()

    client = Client(peer(script).url)
    waiting = threading.Event()
    ended: list[BaseException] = []

    def listen() -> None:
        try:
            for _ in client.stream():
                waiting.set()
        except Unreachable as error:
            ended.append(error)

    listener = threading.Thread(target=listen)
    listener.start()
    assert waiting.wait(5)
    client.close()
    listener.join(5)
    assert not listener.is_alive()
    assert len(ended) == 1


def test_close_wakes_a_requesting_thread(peer: MakePeer) -> None:
    arrived = threading.Event()

    def script(line: Line) -> None:
        line.read()
        arrived.set()
        line.read()

    client = Client(peer(script).url)
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            client.cancel(1)
        except Unreachable as error:
            ended.append(error)

    asker = threading.Thread(target=ask)
    asker.start()
    assert arrived.wait(5)
    client.close()
    asker.join(5)
    assert not asker.is_alive()
    assert len(ended) == 1


def test_closed_client_can_be_used_again(peer: MakePeer) -> None:
    server = peer(answering(HEALTH))
    client = Client(server.url)
    for _ in range(2):
        assert client.health() == HEALTH
        client.close()
    assert server.connections == 2


def test_requests_work_beside_a_stream(peer: MakePeer) -> None:
    def script(line: Line) -> None:
        line.read()
        line.send(CHUNKED)
        line.chunk(event_bytes(batch(1)))
        line.read()

    server = peer(script, answering(HEALTH))
    with Client(server.url) as client:
        commits = client.stream()
        assert next(commits) == batch(1)
        assert client.health() == HEALTH


def test_logs_are_delivered_as_they_are_written(peer: MakePeer) -> None:
    pieces = [b"a\n", b"\xff\x00", b"x" * 200_000]

    def script(line: Line) -> None:
        line.read()
        line.send(CHUNKED)
        for piece in pieces:
            line.chunk(piece)
        line.chunk(b"")

    server = peer(script)
    with Client(server.url) as client:
        assert b"".join(client.logs("7_3", stream="stderr", follow=True, offset=-9)) == b"".join(pieces)
    assert server.requests[0].target == "/v1/jobs/7_3/logs?stream=stderr&offset=-9&follow=1"


def test_cut_log_is_not_taken_for_its_end(peer: MakePeer) -> None:
    def script(line: Line) -> None:
        line.read()
        line.send(CHUNKED)
        line.chunk(b"half of it")

    with Client(peer(script).url) as client:
        got = []
        with pytest.raises(Unreachable):
            got.extend(client.logs(7))


def test_refused_log_carries_the_problem(peer: MakePeer) -> None:
    server = peer(answering(Problem("node_away", "gpu01 is away"), 503))
    with Client(server.url) as client, pytest.raises(Refused, match="gpu01 is away"):
        list(client.logs(7))


# --- addresses ---


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host",
        "https://user@host:1",
        "unix://relative.sock",
        "unix:relative",
        "unix:///",
        "http://",
        "http://host:99999",
        "http://host:x",
        "http://user@host:1",
        "http://host:1/path",
        "/var/run/corral.sock",
        "http://[::1",
        "x",
    ],
)
def test_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(Unreachable) as caught:
        Client(url)
    assert "unix:///" in caught.value.hint


@pytest.mark.parametrize("token", ["two\nlines", "nül", "\udcff", "\x7f"])
def test_invalid_token_is_refused_before_it_is_sent(token: str) -> None:
    with pytest.raises(Unreachable, match="the token is not"):
        Client("http://127.0.0.1:1", token=token)


def test_unreachable_controller_is_reported_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for url, why in [
        (f"unix://{tmp_path}/none.sock", "the socket does not exist"),
        (f"unix://{tmp_path}/file", "no process listens"),
        (f"unix://{tmp_path}/{'x' * 200}", "too long"),
        ("http://127.0.0.1:1", "no process listens"),
    ]:
        with pytest.raises(Unreachable, match=why) as caught:
            Client(url).health()
        assert caught.value.hint
