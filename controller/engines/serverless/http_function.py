"""The engine type `http-function`: a function that runs for each POST request, such as on Cloud Run."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import urlsplit

import aiohttp

from controller.engines.aws.answers import read_body
from controller.engines.contract import AskRefused, EngineScope, EngineUnavailable
from controller.engines.serverless.function_options import FunctionOptions
from controller.engines.serverless.http_session import HttpSession
from controller.engines.serverless.job_objects import SLACK_S
from controller.engines.serverless.serverless_engine import ServerlessEngine
from wire import trusted_paths
from wire.text import printable

FIRST_ANSWER_S = 0.5
"""Seconds for which invoke() waits for an answer. A refusal usually comes within them. The answer of a
function that runs a job comes only when the job has ended.
"""
MOST_ANSWER_BYTES = 64 * 1024
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_TOO_LONG = 413
_NOT_STARTED = (401, 403, 404, 405, 429)
"""The HTTP statuses with which a platform or the handler refuses a request before the handler reads the
event.
"""


@dataclass(frozen=True, kw_only=True)
class HttpFunctionType(FunctionOptions):
    """The options of the engine.

    - `url` is the address of the function.
    - `token_file` has the token that each request bears (Authorization: Bearer). It is read for each request.
    - `allow_http` permits an address without TLS that is not on this machine.
    """

    name: ClassVar[str] = "http-function"

    url: str
    token_file: str = ""
    allow_http: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url: {self.url!r} is not the address of a function")
        if parts.scheme == "http" and not self.allow_http and parts.hostname not in _LOOPBACK:
            raise ValueError(
                "url: use https, because an event has the environment of the job; in a trusted network set "
                "allow_http = true"
            )

    def connect(self, scope: EngineScope) -> ServerlessEngine:
        """Return the engine. It connects with its first request."""
        session = HttpSession()
        return ServerlessEngine(self, scope, HttpInvoker(self, session), session)


class HttpInvoker:
    """Calls an HTTP function. The function answers when the job has ended, so invoke() returns after
    FIRST_ANSWER_S, and a task waits for the answer. The result of the job is not in the answer but in the
    storage, because the connection does not outlive the controller.
    """

    def __init__(self, options: HttpFunctionType, session: HttpSession) -> None:
        self.where = urlsplit(options.url).netloc
        self._options, self._session = options, session
        self._calls: set[asyncio.Task[None]] = set()
        self._failures: dict[str, str] = {}

    async def invoke(self, payload: bytes, tag: str) -> None:
        headers = {"content-type": "application/json"}
        if self._options.token_file:
            headers["authorization"] = f"Bearer {self._token()}"
        self._failures.pop(tag, None)
        call = asyncio.get_running_loop().create_task(self._call(payload, headers), name=f"call {tag}")
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        done, _ = await asyncio.wait((call,), timeout=FIRST_ANSWER_S)
        if done:
            await call
        else:
            call.add_done_callback(lambda ended: self._note(tag, ended))

    async def _call(self, payload: bytes, headers: dict[str, str]) -> None:
        limit = aiohttp.ClientTimeout(total=self._options.longest_s + SLACK_S)
        try:
            async with self._session.get().post(
                self._options.url, data=payload, headers=headers, timeout=limit, allow_redirects=False
            ) as answer:
                status, text = answer.status, await read_body(answer, MOST_ANSWER_BYTES)
        except aiohttp.ClientConnectorError as error:
            raise AskRefused(f"{self.where} cannot be reached: {error}") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise EngineUnavailable(f"{self.where}: no answer to a call: {error}") from None
        if status < 300:
            return
        why = f"{self.where} answers with status {status}: {printable(text.decode(errors='replace'), 200)}"
        if status in (*_NOT_STARTED, _TOO_LONG):
            raise AskRefused(why, lasting=status == _TOO_LONG)
        raise EngineUnavailable(why)

    def _note(self, tag: str, call: asyncio.Task[None]) -> None:
        if not call.cancelled() and (error := call.exception()) is not None:
            self._failures[tag] = str(error)

    def failure(self, tag: str) -> str:
        return self._failures.get(tag, "")

    def forget(self, tag: str) -> None:
        self._failures.pop(tag, None)

    async def close(self) -> None:
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def _token(self) -> str:
        path = os.path.expanduser(self._options.token_file)
        try:
            with open(trusted_paths.open_file(path), encoding="ascii") as file:
                return file.readline().strip()
        except (OSError, UnicodeDecodeError, trusted_paths.UntrustedPath) as error:
            raise AskRefused(f"the token file {path} cannot be read: {error}") from None
