"""Decides whose question is answered next: users take turns, each with their questions in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controller.core.model.inputs import Refusal
from controller.questions.engine_copy import QuestionRefused

MAX_WAITING = 50
"""Questions of one user that may wait at the same time."""


class UserTurns:
    """A number of slots, given to users in turn."""

    def __init__(self, places: int, wait_s: float) -> None:
        self._free = places
        self._wait_s = wait_s
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """The waiting questions by user. The first user has had no slot for the longest time."""

    def resize(self, more: int) -> None:
        """Add slots, or remove some if `more` is negative. Slots in use are not taken back."""
        self._free += more
        self._give()

    @asynccontextmanager
    async def place(self, user: str) -> AsyncIterator[None]:
        """Hold a slot; raises QuestionRefused if none becomes free in time."""
        await self._take(user)
        try:
            yield
        finally:
            self._free += 1
            self._give()

    async def _take(self, user: str) -> None:
        waiting = self._waiting.setdefault(user, deque())
        if len(waiting) >= MAX_WAITING:
            raise QuestionRefused(
                Refusal(
                    "busy",
                    f"{len(waiting)} questions of {user} are waiting already",
                    hint="Ask again when some of them are answered.",
                )
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        self._give()
        try:
            async with asyncio.timeout(self._wait_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # it was given a place at the same moment
                self._free += 1
                self._give()
            else:
                turn.cancel()
                self._leave(user, turn)
            if isinstance(error, TimeoutError):
                raise QuestionRefused(
                    Refusal(
                        "busy",
                        f"the controller did not get to this question within {self._wait_s:g} s: "
                        "others are being answered",
                        hint="Ask again in a moment. [questions] at_once says how many are answered at once.",
                    )
                ) from None
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
                self._waiting[user] = waiting  # behind all others
