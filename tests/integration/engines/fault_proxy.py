"""A proxy before a function that loses, delays and doubles events, and before a storage without a lock."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from aiohttp import web
from yarl import URL

from controller.engines.serverless.http_session import HttpSession

LATE_S = 4.0


class FaultProxy:
    """Passes requests on. Conditional writes are passed on one after the other, because moto's server checks
    If-None-Match without a lock: two such writes at the same moment can both succeed there.

    If `faults` is true, of each five events that carry a tag for the first time one is lost, one is late, and
    one is doubled. An event that is repeated is passed on.
    """

    def __init__(self, target: str) -> None:
        self.address, self.faults = "", False
        self.played: Counter[str] = Counter()
        self._target = target
        self._seen: set[bytes] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._session, self._lock = HttpSession(), asyncio.Lock()

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        skip = ("host", "content-length", "transfer-encoding")
        headers = {key: text for key, text in request.headers.items() if key.lower() not in skip}
        url = f"{self._target}{request.raw_path}"
        if request.method != "POST":
            return await self._pass_on(request, url, headers, body)
        tag = body.partition(b'"tag":"')[2].partition(b'"')[0]
        kind = len(self._seen) % 5 if self.faults and tag not in self._seen else None
        self._seen.add(tag)
        if kind == 0:
            self.played["lost"] += 1
            return web.Response(status=202)
        if kind == 1:
            self.played["late"] += 1
            self._later(LATE_S, url, headers, body)
            return web.Response(status=202)
        if kind == 2:
            self.played["doubled"] += 1
            self._later(0.0, url, headers, body)
        return await self._pass_on(request, url, headers, body)

    async def _pass_on(
        self, request: web.Request, url: str, headers: dict[str, str], body: bytes
    ) -> web.Response:
        async with self._lock if "If-None-Match" in request.headers else nullcontext():
            status, given, text = await self._send(request.method, url, headers, body)
        kept = {name: given[name] for name in ("Date", "Last-Modified", "Content-Type") if name in given}
        return web.Response(status=status, body=text, headers=kept)

    def _later(self, seconds: float, url: str, headers: dict[str, str], body: bytes) -> None:
        async def send() -> None:
            await asyncio.sleep(seconds)
            await self._send("POST", url, headers, body)

        task = asyncio.get_running_loop().create_task(send())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(
        self, method: str, url: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        session = self._session.get()
        async with session.request(method, URL(url, encoded=True), data=body, headers=headers) as answer:
            return answer.status, answer.headers, await answer.read()

    async def run(self, ready: threading.Event, over: asyncio.Event) -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self.handle)
        runner = web.AppRunner(app, handler_cancellation=False)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        ready.set()
        await over.wait()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await runner.cleanup()
        await self._session.close()


@contextmanager
def fault_proxy(target: str) -> Iterator[FaultProxy]:
    """Yield a proxy that runs in a thread."""
    made, ready = FaultProxy(target), threading.Event()
    loop, over = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(made.run(ready, over)))
    thread.start()
    assert ready.wait(60)
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()
