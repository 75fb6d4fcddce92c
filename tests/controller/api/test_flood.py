"""A flood of connections costs root and the controller's user nothing. The floods are real."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from tests import users
from tests.controller.api.running_controller import start_controller
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
    """One request on a connection of its own, sent once; the role that the controller saw."""
    transport = Transport(url, 120.0, token)
    try:
        role: str = json.loads(transport.ask("GET", "/v1/health", None, (), question=True))["role"]
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


async def test_the_holder_of_the_token_gets_every_answer_in_a_flood_of_tcp() -> None:
    with users.made("flood") as [user]:
        async with start_controller(api={"listen": "127.0.0.1:0", "max_connections": 100}) as api:
            token = (api.daemon.config.state_dir / "token").read_text().strip()
            tcp = urlsplit(api.server.tcp_url)
            async with flood(user.pw_uid, "tcp", [tcp.hostname, tcp.port]):
                assert await answers(api.server.tcp_url, token) == ["admin"] * ROUNDS
        assert api.server._connections._door._inside == {}
        assert api.server._connections._door._unproven == {}
