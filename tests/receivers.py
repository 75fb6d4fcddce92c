"""An HTTP server for webhooks that tests start, and that can fail as ordered."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Hook:
    """A running HTTP server: its requests, and the orders for its next answers."""

    port: int = 0
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    """Headers (names in lower case) and body of each request, also of those that were not answered well."""
    orders: deque[Any] = field(default_factory=deque)
    """What happens to the next requests: a status, "cut" (close the connection) or "hang". Empty: 200."""
    release: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def bodies(self) -> list[dict[str, Any]]:
        """The JSON bodies of all requests."""
        return [json.loads(body) for _, body in [*self.requests]]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.requests.append(({name.lower(): value for name, value in request.headers.items()}, body))
        order = self.orders.popleft() if self.orders else 200
        if order == "cut":
            assert request.transport is not None
            request.transport.abort()
        elif order == "hang":
            await asyncio.get_running_loop().run_in_executor(None, self.release.wait)
        return web.Response(status=order if isinstance(order, int) else 200, text="as ordered")


@contextmanager
def hook(port: int = 0) -> Iterator[Hook]:
    """Run an HTTP server on loopback until the end of the block. Port 0: a free one."""
    made, ready, loop = Hook(), threading.Event(), asyncio.new_event_loop()

    async def serve() -> web.AppRunner:
        app = web.Application()
        app.router.add_post("/{path:.*}", made.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        made.port = runner.addresses[0][1]
        return runner

    def run() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(serve())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield made
    finally:
        made.release.set()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
