"""One process for one tab: packets, sizes, and the end of the process however the tab ends."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import ClientWebSocketResponse, web
from aiohttp.test_utils import TestClient, TestServer

from tests.limits import PATIENCE_S
from tui.web import session
from tui.web.session import BrowserSession

ECHO = """
import os, struct, sys
def send(data): os.write(1, b"D" + struct.pack(">I", len(data)) + data)
os.write(1, b"__GANGLION__\\n")
send(f"{os.getpid()} {os.environ['COLUMNS']}x{os.environ['ROWS']}".encode())
while data := os.read(0, 65536): send(data)
"""
DEAF = ECHO.replace("while data", "import time\nwhile time.sleep(0.1) is None: pass\nwhile data")
BROKEN = "import sys; sys.exit('corral: no controller at unix:///nowhere\\x1b[31m')"


@asynccontextmanager
async def tab(program: str) -> AsyncIterator[ClientWebSocketResponse]:
    """The browser's end of a session with this program."""

    async def handle(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await BrowserSession([sys.executable, "-c", program], os.environ, socket).run(90, 30)
        return socket

    application = web.Application()
    application.router.add_get("/ws", handle)
    async with TestClient(TestServer(application)) as client, asyncio.timeout(PATIENCE_S):
        yield await client.ws_connect("/ws")


async def gone(pid: int) -> None:
    """Wait until no process has this id."""
    async with asyncio.timeout(PATIENCE_S):
        with suppress(ProcessLookupError):
            while True:
                os.kill(pid, 0)
                await asyncio.sleep(0.02)


async def test_keys_and_sizes_reach_the_process_as_packets() -> None:
    async with tab(ECHO) as browser:
        assert (await browser.receive_bytes()).endswith(b" 90x30")
        await browser.send_json(["stdin", "q"])
        assert await browser.receive_bytes() == b"D\0\0\0\x01q"
        await browser.send_json(["resize", {"width": 100_000, "height": -1}])
        kept = await browser.receive_bytes()
        assert json.loads(kept[5:]) == {"type": "resize", "width": session.MOST, "height": session.LEAST}


@pytest.mark.parametrize(
    "wrong", ["", "[]", "{}", "7", '["resize"]', '["resize", {"width": "x"}]', '["unknown", 1]']
)
async def test_messages_of_unknown_form_are_ignored(wrong: str) -> None:
    async with tab(ECHO) as browser:
        await browser.receive_bytes()
        await browser.send_str(wrong)
        await browser.send_json(["stdin", "x"])
        assert await browser.receive_bytes() == b"D\0\0\0\x01x"


async def test_the_process_ends_with_its_tab() -> None:
    async with tab(ECHO) as browser:
        pid = int((await browser.receive_bytes()).split()[0])
        await browser.close()
        await gone(pid)


async def test_a_process_that_ignores_the_end_of_its_tab_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "KILL_S", 0.1)
    async with tab(DEAF) as browser:
        pid = int((await browser.receive_bytes()).split()[0])
        await browser.close()
        await gone(pid)


async def test_the_errors_of_a_process_that_cannot_start_are_shown_in_the_tab() -> None:
    async with tab(BROKEN) as browser:
        assert await browser.receive_bytes() == "corral: no controller at unix:///nowhere\ufffd[31m".encode()
        assert (await browser.receive()).type.name in ("CLOSE", "CLOSING", "CLOSED")
