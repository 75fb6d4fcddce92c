"""Limits the number of requests of one user that run at a time, so that these requests do not delay requests
of other users.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

AT_ONCE = 4
"""The most requests of one user that run at the same time."""


class RequestTurns:
    """Limits how many short requests of each user run at a time. Admins and slow requests are not limited by
    this class.

    A request waits until fewer than AT_ONCE requests of its user run. Requests of a user begin in the order
    of their arrival. Slow requests (`Route.slow`) have their own limits.

    Invariant: at most AT_ONCE requests of a user have begun and are unanswered, apart from slow requests.
    Cost: some microseconds for each request.

    Example: eve sends 500 requests at once, and each takes 10 ms. A request of ada then waits for at most 4
    requests of eve, which is 40 ms and not 5 s.
    """

    def __init__(self) -> None:
        self._places: dict[str, asyncio.Semaphore] = {}
        self._present: Counter[str] = Counter()

    @asynccontextmanager
    async def of(self, user: str) -> AsyncIterator[None]:
        """Wait until this user may run another request, which then counts as running until the end of the
        `async with` block.
        """
        places = self._places.setdefault(user, asyncio.Semaphore(AT_ONCE))
        self._present[user] += 1
        try:
            async with places:
                yield
        finally:
            self._present[user] -= 1
            if not self._present[user]:
                del self._present[user], self._places[user]
