"""Limits how many requests of one user run at a time, because many requests of one user would delay
others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

AT_ONCE = 4
"""The most requests of one user that run at the same time."""


class RequestTurns:
    """Limits short requests per user. Requests of admins and slow ones (`Route.slow`) do not wait here.

    A request waits until fewer than AT_ONCE requests of its user run. Requests of a user begin in their
    order.

    Invariant: at most AT_ONCE of these requests of a user have begun and have no answer yet.
    Cost: some microseconds for each request.

    Example: eve sends 500 requests at once, and each takes 10 ms. A request of root then waits for at most 4
    of them per step, which is 40 ms and not 5 s.
    """

    def __init__(self) -> None:
        self._places: dict[str, asyncio.Semaphore] = {}
        self._present: Counter[str] = Counter()

    @asynccontextmanager
    async def of(self, user: str) -> AsyncIterator[None]:
        """Wait until this user may run a request. The request counts as running until the end of the
        block."""
        places = self._places.setdefault(user, asyncio.Semaphore(AT_ONCE))
        self._present[user] += 1
        try:
            async with places:
                yield
        finally:
            self._present[user] -= 1
            if not self._present[user]:
                del self._present[user], self._places[user]
