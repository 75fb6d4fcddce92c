"""Requests that are not HTTP, not known, or never complete."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from typing import Any

import pytest

from controller.api.server import app, protocol
from controller.api.server.access import Caller, Role
from tests.controller.api.running_controller import RunningController, start_controller

ROOT = Caller("root", Role.ADMIN)
ASK = b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n"


class Line:
    """A bare connection."""

    def __init__(self, api: RunningController) -> None:
        self.api = api

    async def __aenter__(self) -> Line:
        self.reader, self.writer = await asyncio.open_unix_connection(str(self.api.socket))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        """Status, headers and body of one answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        body = await self.reader.readexactly(int(headers["content-length"]))
        return int(head[0].split()[1]), headers, json.loads(body)

    async def closed(self) -> None:
        """Wait until the other end has hung up."""
        assert await self.reader.read() == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\nnonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"FROB /v1/health HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/health HTTP/9.9\r\n\r\n",
        b"GET /v1/health HTTP/1.1\r\nNo colon here\r\n\r\n",
        b"GET /v1/health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/health HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 1_000 + b"\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0",
    ],
)
async def test_bytes_that_are_not_http_are_answered_and_the_connection_closed(
    api: RunningController, sent: bytes
) -> None:
    async with Line(api) as line:
        await line.send(sent)
        status, _, problem = await line.answer()
        assert (status, problem["code"]) == (400, "invalid")
        assert "not a request in HTTP" in problem["message"]
        assert "Traceback" not in str(problem)
        await line.closed()
    assert (await api.get("/v1/health"))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "not_found"),
        ("GET", "/v1", 404, "not_found"),
        ("GET", "/v1/jobs/", 404, "not_found"),
        ("GET", "/v1/jobs/1/x", 404, "not_found"),
        ("GET", "/v1/../v1/jobs/{job}", 404, "not_found"),
        ("GET", "/V1/health", 404, "not_found"),
        ("DELETE", "/v1/jobs", 405, "no_such_method"),
        ("HEAD", "/v1/jobs", 405, ""),
        ("OPTIONS", "/v1/jobs", 405, "no_such_method"),
        ("PUT", "/v1/jobs/1", 405, "no_such_method"),
        ("GET", "/v1/jobs/1/cancel", 405, "no_such_method"),
        ("POST", "/v1/stream", 405, "no_such_method"),
    ],
)
async def test_unknown_path_or_method_is_refused(
    api: RunningController, method: str, path: str, status: int, code: str
) -> None:
    async with api.session.request(method, f"http://corral{path}") as response:
        assert response.status == status
        assert ("Allow" in response.headers) == (status == 405)
        body = await response.read()
        assert not code or json.loads(body)["code"] == code


async def test_options_asterisk_is_answered(api: RunningController) -> None:
    async with Line(api) as line:
        await line.send(b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await line.answer())[0] == 404


async def test_http_1_0_clients_are_answered(api: RunningController) -> None:
    await api.submit()
    async with Line(api) as line:
        await line.send(b"GET /v1/health HTTP/1.0\r\n\r\n")
        assert (await line.answer())[0] == 200
    async with Line(api) as line:
        await line.send(b"GET /v1/stream?after=0 HTTP/1.0\r\n\r\n")
        assert b"200 OK" in await line.reader.readline()
        await line.reader.readuntil(b"id: 1\n")


async def test_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "STALLED_S", 0.05)
    async with start_controller() as api:
        await api.post("/v1/jobs", {"spec": {"command": ["true"], "array": "1-2000"}})
        lines = [socket.socket(socket.AF_UNIX) for _ in range(2)]
        for line, path in zip(lines, (b"/v1/stream?after=0", b"/v1/jobs"), strict=True):
            line.connect(str(api.socket))
            line.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        inside = api.server._connections._limit._open
        while inside.total() < 3:  # our own, and both of them
            await asyncio.sleep(0)
        while inside.total() > 1 or api.server._streams._open:
            await asyncio.sleep(0)
        for line in lines:
            line.close()


async def test_path_with_braces_is_an_ordinary_name(api: RunningController) -> None:
    async with Line(api) as line:
        await line.send(b"GET /v1/jobs/{job} HTTP/1.1\r\nHost: x\r\n\r\n")
        status, _, problem = await line.answer()
        assert (status, problem["message"]) == (404, "there is no job '{job}'")


async def test_compressed_bodies_are_refused(api: RunningController) -> None:
    bomb = gzip.compress(bytes(50_000_000))
    for encoding in ("gzip", "deflate", "br", "zstd", "x"):
        status, problem = await api.ask(
            "POST",
            "/v1/jobs",
            data=bomb,
            headers={"Content-Encoding": encoding},
            skip_auto_headers=["Accept"],
        )
        assert (status, problem["where"]) == (415, "Content-Encoding")


@pytest.mark.parametrize("declared", [True, False])
async def test_too_large_body_is_refused_before_it_is_read(declared: bool) -> None:
    async with start_controller(api={"max_body": 1024}) as api, Line(api) as line:
        how = b"Content-Length: 1000000000" if declared else b"Transfer-Encoding: chunked"
        await line.send(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\n" + how + b"\r\n\r\n")
        if not declared:
            await line.send(b"400\r\n" + b" " * 1024 + b"\r\n" + b"400\r\n" + b" " * 1024 + b"\r\n")
        status, headers, problem = await line.answer()
        assert (status, problem["code"], headers["connection"]) == (413, "too_large", "close")


async def test_body_of_the_largest_allowed_size_is_read() -> None:
    async with start_controller(api={"max_body": 1024}) as api:
        body = json.dumps({"spec": {"command": ["true"]}}).encode()
        assert (await api.post("/v1/jobs", body.ljust(1024)))[0] == 201
        assert (await api.post("/v1/jobs", body.ljust(1025)))[0] == 413


async def test_expect_continue_is_answered(api: RunningController) -> None:
    body = b'{"spec":{"command":["true"]}}'
    async with Line(api) as line:
        head = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
        await line.send(head % len(body))
        assert await line.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await line.send(body)
        assert (await line.answer())[0] == 201


async def test_chunked_body_is_read(api: RunningController) -> None:
    async with Line(api) as line:
        await line.send(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (b'{"spec":', b'{"command":', b'["true"]}}'):
            await line.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            assert (await api.get("/v1/health"))[0] == 200  # a turn of the loop in between
        await line.send(b"0\r\n\r\n")
        assert (await line.answer())[0] == 201


async def test_pipelined_requests_are_answered_in_order(api: RunningController) -> None:
    async with Line(api) as line:
        await line.send(ASK * 50 + b"GET /v1/nowhere HTTP/1.1\r\nHost: x\r\n\r\n")
        assert [(await line.answer())[0] for _ in range(51)] == [200] * 50 + [404]


async def test_body_that_never_arrives_times_out(
    api: RunningController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "BODY_S", 0.05)
    async with Line(api) as line:
        await line.send(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        status, _, problem = await line.answer()
        assert (status, problem["code"]) == (408, "timeout")
        await line.closed()


@pytest.mark.parametrize("sent", [b"", b"GET /v1/hea", b"GET /v1/health HTTP/1.1\r\nHost: "])
async def test_head_that_never_ends_times_out(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(protocol, "IDLE_S", 0.05)
    async with start_controller() as api, Line(api) as line:
        await line.send(sent)
        await line.closed()


async def test_a_thousand_slow_connections_do_not_block_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async with start_controller(api={"max_connections": 100}) as api:
        lines = []
        for number in range(1_000):
            line = socket.socket(socket.AF_UNIX)
            line.connect(str(api.socket))
            line.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Le"[: number % 40])
            lines.append(line)
            if not number % 100:
                assert await api.submit()
        await api.join("gpu01")
        assert await api.placed(1) == ["gpu01"]
        for line in lines:
            line.close()
        assert (await api.get("/v1/health"))[0] == 200


async def test_connection_above_the_limit_is_refused_as_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.api.server.identity.Identity.privileged", lambda _self, _uid: False)
    async with start_controller(api={"max_connections": 4}) as api, Line(api) as first, Line(api):
        await first.send(ASK)
        assert (await first.answer())[0] == 200
        async with Line(api) as late:
            await late.send(ASK)
            status, _, problem = await late.answer()
            assert (status, problem["code"]) == (503, "busy")
            await late.closed()
    assert api.server._connections._limit._open == {}


@pytest.mark.parametrize(("descriptors", "wanted", "room"), [(64, 1_000, 32), (64, 4, 4), (-1, 1_000, 1_000)])
async def test_connections_leave_descriptors_for_agents_and_files(
    monkeypatch: pytest.MonkeyPatch, descriptors: int, wanted: int, room: int
) -> None:
    """A controller that may not have more opens its store and reaches its agents all the same."""
    monkeypatch.setattr(protocol.resource, "getrlimit", lambda _: (descriptors, descriptors))
    assert protocol.connection_limit(wanted) == room


async def test_client_that_disconnects_early_does_not_disturb_others(api: RunningController) -> None:
    for sent in (b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", ASK, ASK[:20], b""):
        async with Line(api) as line:
            await line.send(sent)
    assert await api.submit() == 1


async def test_internal_error_is_reported_without_details(
    api: RunningController, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("the secret inside")

    monkeypatch.setattr(api.daemon.engine, "explain", broken)
    await api.submit()
    status, problem = await api.get("/v1/jobs/1")
    assert (status, problem["code"]) == (500, "internal")
    assert "secret" not in json.dumps(problem)
    assert "the secret inside" in caplog.text
    assert (await api.get("/v1/health"))[0] == 200


async def test_submit_is_refused_when_the_store_is_full(api: RunningController) -> None:
    writer = api.daemon.store._writer
    used = writer.exec_driver_sql("PRAGMA page_count").scalar_one()
    writer.exec_driver_sql(f"PRAGMA max_page_count = {used + 4}")
    writer.rollback()
    answers: list[int] = []
    while not answers or answers[-1] == 201:
        status, problem = await api.post("/v1/jobs", {"spec": {"command": ["true", "x" * 4_000]}})
        answers.append(status)
    assert (status, problem["code"]) == (507, "storage_full")
    assert problem["hint"]
    kept = await api.daemon.read(lambda: api.daemon.store.jobs(limit=1_000))
    assert len(kept) == answers.count(201)
    writer.exec_driver_sql("PRAGMA max_page_count = 1000000")
    writer.rollback()


async def test_stopping_controller_refuses_submits(api: RunningController) -> None:
    api.daemon.stop()
    status, problem = await api.post("/v1/jobs", {"spec": {"command": ["true"]}})
    assert (status, problem["code"]) == (503, "stopping")


async def test_submit_is_not_visible_before_it_is_on_disk(
    api: RunningController, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, entered, gate = api.daemon.store.commit, asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def held(batch: Any) -> None:
        loop.call_soon_threadsafe(entered.set)
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()
        commit(batch)

    await api.submit(hold=True)
    old = api.daemon.store.journal(0, 1)
    monkeypatch.setattr(api.daemon.store, "commit", held)
    released = asyncio.create_task(api.post("/v1/jobs/1/release"))
    await entered.wait()
    rendered = asyncio.create_task(api.server._streams.render_entries(old, True, ROOT))
    paths = ["/v1/jobs", "/v1/jobs/1", "/v1/cluster", "/v1/nodes", "/v1/health"]
    asked = [asyncio.create_task(api.get(path)) for path in paths]
    for _ in range(3):
        assert (await api.get("/v1/openapi.json"))[
            0
        ] == 200  # requests without a commit are answered meanwhile
    assert not any(task.done() for task in [released, rendered, *asked])
    gate.set()
    assert (await released)[0] == 200
    listed, shown, *_ = await asyncio.gather(*asked)
    assert listed[1]["jobs"][0]["reason"] == shown[1]["job"]["reason"] != "held"
    assert b'"reason":"held"' not in await rendered
