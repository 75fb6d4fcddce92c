"""A function server that calls Corral's handler for each request, and can lose, delay and double events."""

from __future__ import annotations

import asyncio
import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from aiohttp import web

DEPLOY = Path(__file__).parents[4] / "deploy" / "serverless"
TOKEN = "function-token"


def handler() -> ModuleType:
    """Return Corral's handler as a module."""
    spec = importlib.util.spec_from_file_location("corral_function", DEPLOY / "corral_function.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class FunctionRequest:
    """A request as the handler gets it."""

    headers: Any
    body: bytes

    def get_data(self) -> bytes:
        return self.body


@dataclass
class FunctionServer:
    """The server. The next `lose` events get an answer and no call; each of the next `double` events gets
    two calls; with `late_s` calls begin later than their answers.
    """

    lose: int = 0
    double: int = 0
    late_s: float = 0.0
    status: int = 0
    """A status with which the platform refuses all requests."""
    fail: bool = False
    """Whether the platform ends each call before the handler begins."""
    events: list[bytes] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    address: str = ""
    _runner: web.AppRunner | None = None
    _calls: set[asyncio.Task[Any]] = field(default_factory=set)

    async def start(self, port: int = 0) -> None:
        app = web.Application(client_max_size=1 << 20)
        app.router.add_post("/", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.address = f"http://127.0.0.1:{self._runner.addresses[0][1]}/"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def idle(self) -> None:
        """Wait for the ends of all calls."""
        while self._calls:
            await asyncio.gather(*self._calls, return_exceptions=True)

    def call(self, request: FunctionRequest) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(self._run(request))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    async def _run(self, request: FunctionRequest) -> Any:
        await asyncio.sleep(self.late_s)
        answer = await asyncio.to_thread(handler().http_handler, request)
        self.answers.append(answer)
        return answer

    async def _answer(self, request: web.Request) -> web.Response:
        given = FunctionRequest(dict(request.headers), await request.read())
        self.events.append(given.body)
        if self.status:
            return web.Response(status=self.status, text="not now")
        if self.fail:
            return web.Response(status=500, text="the function has crashed")
        if self.lose:
            self.lose -= 1
            return web.json_response({})
        if self.double:
            self.double -= 1
            self.call(given)
        task = self.call(given)
        if self.late_s:
            return web.json_response({})
        answer = await asyncio.shield(task)
        body, status = answer if isinstance(answer, tuple) else (answer, 200)
        return web.json_response(body, status=status)
