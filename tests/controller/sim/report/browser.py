"""A real Chromium, controlled over its debugging socket."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--remote-debugging-port=0", "--window-size=1200,900"),
)


def chromium() -> str:
    """The path of the browser; skips the test without one."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("there is no Chromium on this machine; with one the page is really opened")
    return found


class Page:
    """A page of the browser. All its warnings and errors are recorded."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.complaints: list[str] = []
        self.events: list[str] = []
        self._socket = socket
        self._count = 0

    async def call(self, method: str, **params: Any) -> Any:
        """One call of the protocol."""
        self._count += 1
        await self._socket.send_json({"id": self._count, "method": method, "params": params})
        while True:
            reply = await self._receive()
            if reply.get("id") == self._count:
                assert "error" not in reply, reply
                return reply["result"]

    async def _receive(self) -> Any:
        reply = json.loads((await self._socket.receive()).data)
        method = reply.get("method", "")
        if method:
            self.events.append(method)
        if method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.complaints.append(json.dumps(reply["params"])[:500])
        return reply

    async def open(self, path: Path) -> None:
        """Open a file and wait until it has loaded and its script has run."""
        for domain in ("Runtime", "Log", "Page", "Network"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=path.as_uri())
        while "Page.loadEventFired" not in self.events:
            await self._receive()
        await self.frame()

    async def frame(self) -> None:
        """Wait until the browser has painted the next frame."""
        await self.ask(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))"
        )

    async def ask(self, expression: str) -> Any:
        """The value of an expression in the page."""
        reply = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in reply, reply
        return reply["result"].get("value")

    async def point(self, x: float, y: float) -> None:
        """Move the mouse to this point."""
        await self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        await self.frame()


@asynccontextmanager
async def browsing(place: Path) -> AsyncIterator[Page]:
    """A browser with an empty page, ended afterwards."""
    process = await asyncio.create_subprocess_exec(
        *(chromium(), *FLAGS, f"--user-data-dir={place}", "about:blank"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        async for line in process.stderr:
            if b"DevTools listening on" in line:
                break
        host = line.decode().split()[-1].split("/")[2]
        async with aiohttp.ClientSession() as session:
            tabs = await (await session.get(f"http://{host}/json")).json()
            address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
            async with session.ws_connect(address, max_msg_size=0) as socket:
                yield Page(socket)
    finally:
        process.terminate()
        await process.wait()
