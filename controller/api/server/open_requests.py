"""Ends open requests, such as event streams, whose caller has lost the right to them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from aiohttp import web

from controller.api.server.errors import Rejected
from controller.store.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.core.state.tokens import Tokens

CHECK_S = 0.25
"""The longest time, in seconds, from a revocation to the end of the open requests."""


class OpenRequests:
    """The open requests of routes whose answer can take long (`Route.slow`).

    1. While such requests are open, look every CHECK_S seconds whether a token was created or revoked,
       whether the configuration has changed, and whether a token has expired.
    2. If so, find the caller of each open request again, and check the caller's right again.
    3. Close the connection of each request whose caller has lost the right. The client gets no further data.

    Cost: one comparison every CHECK_S seconds while a request is open, and one check of rights for each open
    request after a change.
    """

    def __init__(
        self, tokens: Callable[[], Tokens], config: Callable[[], object], now: Callable[[], float]
    ) -> None:
        self._tokens = tokens
        self._config = config
        self._now = now
        self._open: dict[int, tuple[web.BaseRequest, Callable[[], Awaitable[None]]]] = {}
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def watched(self, request: web.BaseRequest, permit: Callable[[], Awaitable[None]]) -> Iterator[None]:
        """Watch a request until the end of the `with` block. `permit` raises Rejected if the caller has lost
        the right to the request.
        """
        self._open[id(request)] = request, permit
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._watch())
        try:
            yield
        finally:
            del self._open[id(request)]

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _watch(self) -> None:
        checked: tuple[int, int, int] | None = self._version()
        while self._open:
            await asyncio.sleep(CHECK_S)
            version = self._version()
            if version != checked:
                checked = version if await self._check() else None
        self._task = None

    async def _check(self) -> bool:
        """Close the connections of requests whose caller has lost the right. Return False if the right of a
        request could not be checked, because the store is away.
        """
        complete = True
        for request, permit in list(self._open.values()):
            try:
                await permit()
            except Rejected:
                if request.transport is not None:
                    request.transport.abort()
            except StoreUnavailable:
                complete = False
        return complete

    def _version(self) -> tuple[int, int, int]:
        """Return a value that changes when a caller may have lost a right."""
        tokens, now = self._tokens(), self._now()
        return tokens.version, id(self._config()), sum(each.is_valid(now) for each in tokens.by_id.values())
