"""Calls the API of Docker or Podman on a unix socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp

from controller.engines.contract import EngineUnavailable

VERSION = "v1.41"
_MOST_HEADER = 8
"""The number of bytes in the header before each piece of output. The header has the stream (1 byte), three
zeros and the length (4 bytes).
"""


class ApiRefusal(Exception):
    """Raised if the daemon has refused a request. `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class DockerApi:
    """The HTTP API of a container daemon, version 1.41, which Docker 20.10 and Podman 4 speak."""

    def __init__(self, socket: str, timeout_s: float) -> None:
        self._socket = socket
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Make a request, and return the JSON of the answer; None if the answer is empty. Raise ApiRefusal
        for a status of 400 or more, and EngineUnavailable if the daemon does not answer.
        """
        limit = aiohttp.ClientTimeout(total=timeout_s or self._timeout_s)
        try:
            async with self._open().request(
                method, f"http://daemon/{VERSION}{path}", params=query, json=body, timeout=limit
            ) as answer:
                data = await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._away(error) from None
        if answer.status >= 400:
            raise ApiRefusal(answer.status, _message(data))
        try:
            return json.loads(data) if data.strip() else None
        except ValueError:
            # Return the last line, because some requests, such as a pull, are answered with one JSON object
            # on each line.
            return json.loads(data.strip().rsplit(b"\n", 1)[-1])

    async def output(self, path: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Yield the output of a container in pieces, without the header that the daemon puts before each
        piece.
        """
        limit = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout_s)
        try:
            async with self._open().get(
                f"http://daemon/{VERSION}{path}", params=query, timeout=limit
            ) as answer:
                if answer.status >= 400:
                    raise EngineUnavailable(_message(await answer.read()))
                while True:
                    try:
                        header = await answer.content.readexactly(_MOST_HEADER)
                        piece = await answer.content.readexactly(int.from_bytes(header[4:], "big"))
                    except EOFError:
                        return
                    yield piece
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._away(error) from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.UnixConnector(self._socket, limit=0)
            self._session = aiohttp.ClientSession(connector=connector)
        return self._session

    def _away(self, error: BaseException) -> EngineUnavailable:
        what = str(error) or type(error).__name__
        return EngineUnavailable(f"no answer from the container daemon at {self._socket}: {what}")


def _message(data: bytes) -> str:
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    text = found.get("message") if isinstance(found, dict) else None
    return str(text or data.decode("utf-8", "replace")).strip()[:500]
