"""Runs reports over the whole store one at a time, in a thread; users take turns."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")
Turn = asyncio.Future[None]


class ReportQueue:
    """One thread with a database connection of its own, apart from the thread of the short reads.

    1. The first request of an idle thread gets the turn at once.
    2. Further requests wait in one line per user.
    3. When a turn is over, the next user in rotation gets one, for the first request in that user's line.

    Invariant: at most one request holds the turn, and while requests wait one does.
    Example: ada sends 50 requests and bob sends one. Bob's is the second that is answered.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "store-reports")
        self._lines: OrderedDict[str, deque[Turn]] = OrderedDict()
        self._taken = False

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """Wait for this user's turn and keep it until the end of the block."""
        if self._taken:
            turn: Turn = asyncio.get_running_loop().create_future()
            self._lines.setdefault(user, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.cancelled():
                    self._withdraw(user, turn)
                else:
                    self._pass_on()  # the turn had been given a moment before the cancellation
                raise
        self._taken = True
        try:
            yield
        finally:
            self._pass_on()

    async def run(self, work: Callable[[], T]) -> T:
        """The result of the work, done in the thread. Only the holder of the turn may call this."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Wait for the report that runs."""
        self._thread.shutdown()

    def _pass_on(self) -> None:
        self._taken = False
        while self._lines:
            user, line = self._lines.popitem(last=False)
            turn = line.popleft()
            if line:
                self._lines[user] = line  # behind the other users
            if not turn.done():
                self._taken = True
                turn.set_result(None)
                return

    def _withdraw(self, user: str, turn: Turn) -> None:
        line = self._lines.get(user, deque())
        if turn in line:
            line.remove(turn)
            if not line:
                del self._lines[user]
