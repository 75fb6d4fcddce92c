"""Calls the API server of Kubernetes: requests, lists in pages, watches and streams of output."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from controller.engines.contract import EngineUnavailable
from controller.engines.kubernetes.kube_access import AccessProblem, ClusterAccess

PAGE = 500
"""The most objects in one page of a list."""
TRIES = 5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 8.0
WATCH_S = 300
"""Seconds after which the API server ends a watch. Corral then resumes the watch at the version of the last
event.
"""
_RETRIED = frozenset((429, 500, 502, 503, 504))
MERGE_PATCH = "application/merge-patch+json"


class KubeRefusal(Exception):
    """Raised if the API server has refused a request. `reason` is a word of Kubernetes, such as Conflict."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message

    @property
    def is_missing_right(self) -> bool:
        """Return whether the credentials are wrong, or lack a right. The status 403 alone is not enough,
        because admission refuses with it too.
        """
        return self.status == 401 or (self.status == 403 and " cannot " in self.message)

    @property
    def problem(self) -> str:
        """Return the problem as a sentence for operators."""
        if self.status == 401:
            return (
                f"the API server does not accept the credentials: {self.message}. Check the token or the "
                "certificate in the kubeconfig"
            )
        if self.is_missing_right:
            return f"a right is missing: {self.message}. deploy/kubernetes has the roles that Corral needs"
        return f"the API server refuses: {self.message}"


class KubeApi:
    """The HTTP API of one API server.

    1. A request that the server refuses because it is busy (429) or has failed (5xx) is sent up to TRIES
       times, after the seconds that the server names, or after pauses that double. All requests of the engine
       may be repeated: Pods have fixed names, and changes name the uid of the Pod.
    2. If all these tries fail, or if there is no answer, raise EngineUnavailable. Other refusals raise
       KubeRefusal.
    """

    def __init__(self, find: Callable[[], ClusterAccess], timeout_s: float) -> None:
        """`find` returns the address and the credentials of the API server. It is called at the first
        request.
        """
        self._find = find
        self._timeout_s = timeout_s
        self._access: ClusterAccess | None = None
        self._session: aiohttp.ClientSession | None = None

    async def access(self) -> ClusterAccess:
        """Return the access to the API server. Read its files in a thread, because a home directory may be on
        a server that does not answer.
        """
        if self._access is None:
            try:
                self._access = await asyncio.to_thread(self._find)
            except AccessProblem as problem:
                raise EngineUnavailable(str(problem)) from None
        return self._access

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Any:
        """Make a request, and return the JSON of the answer."""
        pause = FIRST_PAUSE_S
        for tried in range(1, TRIES + 1):
            async with self._request(method, path, query, body, content_type) as answer:
                data = await answer.read()
            if answer.status < 400:
                return json.loads(data) if data.strip() else None
            refusal = _refusal(answer.status, data)
            if answer.status not in _RETRIED:
                raise refusal
            if tried < TRIES:
                await asyncio.sleep(_pause_s(answer.headers.get("Retry-After", ""), pause))
                pause *= 2
        raise EngineUnavailable(f"the API server answered {refusal.status} {TRIES} times: {refusal.message}")

    async def list_all(self, path: str, query: Mapping[str, str]) -> tuple[list[Any], str]:
        """Return all objects of a list, page by page, and the version of the list. If the server has dropped
        the version between two pages (410), begin again.
        """
        for _ in range(TRIES):
            found: list[Any] = []
            place: dict[str, str] = {"limit": str(PAGE)}
            while True:
                try:
                    page = await self.call("GET", path, {**query, **place})
                except KubeRefusal as refusal:
                    if refusal.status == 410 and found:
                        break
                    raise
                found += page.get("items") or ()
                meta = page.get("metadata") or {}
                if not meta.get("continue"):
                    return found, str(meta.get("resourceVersion", ""))
                place["continue"] = meta["continue"]
        raise EngineUnavailable("the API server drops the pages of a list before they are read")

    async def watch(self, path: str, query: Mapping[str, str], version: str) -> AsyncIterator[Any]:
        """Yield the events after a version, bookmarks included, until the server ends the watch. Raise
        KubeRefusal with the status 410 if the server no longer has the version.
        """
        wanted = {
            **query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_S),
        }
        async for line in self._lines(path, wanted):
            event = json.loads(line)
            if event.get("type") == "ERROR":
                told = event.get("object") or {}
                raise KubeRefusal(
                    int(told.get("code", 500)), str(told.get("reason", "")), str(told.get("message", ""))
                )
            yield event

    async def stream(self, path: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Yield empty bytes when the server begins to answer, and then the bytes of the answer as they
        arrive.
        """
        async with self._request("GET", path, query, unlimited=True) as answer:
            if answer.status >= 400:
                raise _refusal(answer.status, await answer.read())
            yield b""
            try:
                async for piece in answer.content.iter_any():
                    yield piece
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise await self._away(error) from None

    async def _lines(self, path: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        rest = bytearray()
        async for piece in self.stream(path, query):
            rest += piece
            *lines, last = rest.split(b"\n")
            for line in lines:
                if line.strip():
                    yield bytes(line)
            rest = bytearray(last)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any = None,
        content_type: str = "application/json",
        *,
        unlimited: bool = False,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        access = await self.access()
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        limit = aiohttp.ClientTimeout(
            total=None if unlimited else self._timeout_s, sock_connect=self._timeout_s
        )
        headers = {"Accept": "application/json" if not unlimited else "*/*"}
        try:
            token = await asyncio.to_thread(access.token)
        except AccessProblem as problem:
            raise EngineUnavailable(str(problem)) from None
        if token:
            headers["Authorization"] = f"Bearer {token}"
        data = None
        if body is not None:
            headers["Content-Type"] = content_type
            data = json.dumps(body).encode()
        try:
            answer = await self._session.request(
                method,
                access.server + path,
                params=query,
                data=data,
                headers=headers,
                timeout=limit,
                ssl=access.tls if access.tls is not None else True,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise await self._away(error) from None
        try:
            yield answer
        except (aiohttp.ClientError, TimeoutError) as error:
            raise await self._away(error) from None
        finally:
            answer.close()

    async def _away(self, error: BaseException) -> EngineUnavailable:
        what = str(error) or type(error).__name__
        return EngineUnavailable(f"no answer from the API server {(await self.access()).server}: {what}")


def _pause_s(named: str, otherwise: float) -> float:
    """Return the seconds to wait before a request is repeated, at most LONGEST_PAUSE_S: the seconds that the
    server has `named`, or `otherwise` times a random factor, so that many requests are not repeated at the
    same moment.
    """
    seconds = float(named) if named.isdigit() else otherwise * (0.5 + random.random())  # noqa: S311
    return min(LONGEST_PAUSE_S, seconds)


def _refusal(status: int, data: bytes) -> KubeRefusal:
    try:
        found = json.loads(data)
    except ValueError:
        found = {}
    if not isinstance(found, dict):
        found = {}
    message = str(found.get("message") or data.decode("utf-8", "replace")).strip()[:1_000]
    return KubeRefusal(status, str(found.get("reason", "")), message)
