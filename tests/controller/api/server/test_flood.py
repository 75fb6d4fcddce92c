"""A real flood of connections by other users delays neither root nor the controller's user."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from controller.api.server.listeners import BACKLOG
from controller.api.server.request_turns import AT_ONCE, RequestTurns
from tests import users
from tests.controller.api.running_controller import start_controller
from tests.limits import PATIENCE_S
from wire.http import addresses
from wire.http.transport import Transport

FLOOD = """
import json, os, selectors, socket, sys
uid, kind, target, held = json.loads(sys.argv[1])
os.setgroups([])
os.setuid(uid)
def connect():
    line = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
    line.settimeout(5)
    line.connect(target if kind == "unix" else tuple(target))
    line.sendall(b"GET /v1/health HTTP/1.1\\r\\nHost: x\\r\\nX-Slow: ")
    return line
lines, told = [], False
while True:
    try:
        lines.append(connect())
    except OSError:
        pass
    if len(lines) >= held:
        if not told:
            print("flooding", flush=True)
            told = True
        lines.pop(0).close()
"""
ROUNDS = 20
REPEATS = (0.0, 0.2, 1.0, 2.0)
"""The pauses in seconds of a client that repeats a request. The controller replaces the oldest TCP connection
that has sent no token, so it replaces that of a client which gets no core between connecting and sending."""


@asynccontextmanager
async def flood(uid: int, kind: str, target: object, held: int = 400) -> AsyncIterator[None]:
    """A process of this user that opens connections, never ends a request, and opens more."""
    words = json.dumps([uid, kind, target, held])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FLOOD, words, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 60.0) == b"flooding\n"
        yield
        assert process.returncode is None, "the flood has ended by itself"
    finally:
        process.kill()
        await process.wait()


def ask(url: str, token: str = "") -> str:
    """Sends one request on a new connection. Returns the role that the controller saw."""
    transport = Transport(url, 120.0, token)
    pauses = REPEATS if token else ()
    try:
        role: str = json.loads(transport.ask("GET", "/v1/health", None, pauses, question=True))["role"]
        return role
    finally:
        transport.close()


async def answers(url: str, token: str = "") -> list[str]:
    """The answers to many such requests, one after another."""
    async with asyncio.timeout(120.0):
        return [await asyncio.to_thread(ask, url, token) for _ in range(ROUNDS)]


@pytest.mark.parametrize("kind", ["unix", "tcp"])
async def test_root_gets_every_answer_in_a_flood(kind: str) -> None:
    with users.made("flood") as [user]:
        async with start_controller(api={"listen": "127.0.0.1:0", "max_connections": 100}) as api:
            tcp = urlsplit(api.server.tcp_url)
            target = str(api.socket) if kind == "unix" else [tcp.hostname, tcp.port]
            async with flood(user.pw_uid, kind, target):
                assert await answers(api.server.url) == ["admin"] * ROUNDS


async def test_a_full_queue_of_the_users_socket_does_not_keep_root_waiting() -> None:
    """The kernel takes no connection to the users' socket as long as its queue is full."""
    async with start_controller() as api:
        users_door, _ = api.server._acceptors
        asyncio.get_running_loop().remove_reader(users_door._line)
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(2 * BACKLOG)]
        try:
            for line in waiting:
                line.setblocking(False)
            assert errno.EAGAIN in {line.connect_ex(str(api.socket)) for line in waiting}
            assert await answers(api.server.url) == ["admin"] * ROUNDS
        finally:
            for line in waiting:
                line.close()


async def test_the_socket_of_admins_is_closed_to_users() -> None:
    with users.made("eve") as [eve]:
        async with start_controller() as api:
            private = addresses.admin_socket(str(api.socket))
            assert stat.S_IMODE(os.stat(private).st_mode) == 0o600
            connect = f"socket.socket(socket.AF_UNIX).connect({private!r})"
            connect = f"import os, socket; os.setuid({eve.pw_uid}); {connect}"
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", connect, stderr=asyncio.subprocess.PIPE
            )
            _, said = await process.communicate()
            assert b"PermissionError" in said
        assert not os.path.exists(private)


async def test_a_controller_without_that_socket_is_still_found(tmp_path: Path) -> None:
    async with start_controller(tmp_path) as api:
        private = addresses.admin_socket(str(api.socket))
        os.unlink(private)
        assert await asyncio.to_thread(ask, api.server.url) == "admin"
        with socket.socket(socket.AF_UNIX) as dead:  # of a controller of before that was killed
            dead.bind(private)
        assert await asyncio.to_thread(ask, api.server.url) == "admin"


async def test_few_requests_of_one_user_are_carried_out_at_a_time() -> None:
    turns, running, most, done = RequestTurns(), 0, 0, []

    async def request(user: str, number: int) -> None:
        nonlocal running, most
        async with turns.of(user):
            running += user == "eve"
            most = max(most, running)
            await asyncio.sleep(0)
            running -= user == "eve"
            done.append((user, number))

    requests = [("eve", number) for number in range(100)] + [("ada", 0)]
    async with asyncio.TaskGroup() as group:
        for user, number in requests:
            group.create_task(request(user, number))
    assert most == AT_ONCE
    assert done.index(("ada", 0)) <= 2 * AT_ONCE
    assert [number for user, number in done if user == "eve"] == [*range(100)]
    assert turns._places == {}


async def test_a_request_whose_client_goes_leaves_its_place() -> None:
    turns = RequestTurns()

    async def request() -> None:
        async with turns.of("eve"):
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(request()) for _ in range(3 * AT_ONCE)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    async with asyncio.timeout(PATIENCE_S), turns.of("eve"):
        assert turns._present == {"eve": 1}
    assert turns._places == {}


async def test_the_holder_of_the_token_gets_every_answer_in_a_flood_of_tcp() -> None:
    with users.made("flood") as [user]:
        async with start_controller(api={"listen": "127.0.0.1:0", "max_connections": 100}) as api:
            token = (api.daemon.config.state_dir / "token").read_text().strip()
            tcp = urlsplit(api.server.tcp_url)
            async with flood(user.pw_uid, "tcp", [tcp.hostname, tcp.port]):
                assert await answers(api.server.tcp_url, token) == ["admin"] * ROUNDS
        assert api.server._connections._limit._open == {}
        assert api.server._connections._limit._without_token == {}
