"""Serves waiting requests of different users in turn, so that many requests of one user do not delay requests
of other users.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controller.core.model.decision.decision import Refusal

MAX_WAITING = 50
"""The greatest number of requests of one user that may wait at the same time, if `wait_s` of UserTurns is
set.
"""


class TurnRefused(Exception):
    """Raised if a request is refused, because too many requests of its user wait, or because it has waited
    too long. `refusal` has the reason.
    """

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class UserTurns:
    """Limits how many requests are served at the same time. A turn is the permission to serve one request.

    1. While a turn is free, the next request gets the turn at once.
    2. Further requests wait in a separate line for each user.
    3. A turn that becomes free goes to the waiting user whose last turn is longest ago, for the first request
       in this user's line.

    Invariant: no turn is free while a request waits. If `wait_s` is not None, TurnRefused is raised for a
    request that has waited `wait_s` seconds, and for a new request of a user with MAX_WAITING waiting
    requests. Example: with one turn, ada sends 50 requests and then bob sends one. Bob's request is served
    second.
    """

    def __init__(self, at_once: int, wait_s: float | None = None) -> None:
        self._free = at_once
        self._wait_s = wait_s
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """The waiting requests by user. The users are in the order of their last turns (permissions to serve
        a request), the oldest first."""

    def resize(self, more: int) -> None:
        """Change the greatest number of requests that are served at the same time by `more`, which may be
        negative. Requests that are being served continue.
        """
        self._free += more
        self._give()

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """Wait until a request of this user may be served. The request then counts as being served until the
        end of the `async with` block.
        """
        await self._take(user)
        try:
            yield
        finally:
            self._free += 1
            self._give()

    async def _take(self, user: str) -> None:
        waiting = self._waiting.setdefault(user, deque())
        if self._wait_s is not None and len(waiting) >= MAX_WAITING:
            message = f"{len(waiting)} questions of {user} are waiting already"
            raise TurnRefused(Refusal("busy", message, hint="Try again when some of them are answered."))
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        self._give()
        try:
            async with asyncio.timeout(self._wait_s):
                await turn
        except BaseException as error:
            # Give the turn to the next request, because this request got the turn at the same moment as the
            # timeout or the cancellation, and is not served.
            if turn.done() and not turn.cancelled():
                self._free += 1
                self._give()
            else:
                turn.cancel()
                self._leave(user, turn)
            if isinstance(error, TimeoutError):
                message = (
                    f"this question has waited for {self._wait_s:g} s and is dropped, because "
                    "others are being answered"
                )
                hint = "Try again in a moment. [questions] at_once sets how many are answered at a time."
                raise TurnRefused(Refusal("busy", message, hint=hint)) from None
            raise

    def _leave(self, user: str, turn: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(user, deque())
        if turn in waiting:
            waiting.remove(turn)
        if not waiting:
            self._waiting.pop(user, None)

    def _give(self) -> None:
        while self._free > 0 and self._waiting:
            user = next(iter(self._waiting))
            waiting = self._waiting.pop(user)
            while waiting:
                turn = waiting.popleft()
                if not turn.done():
                    self._free -= 1
                    turn.set_result(None)
                    break
            if waiting:
                self._waiting[user] = waiting  # Move this user behind all other waiting users.
