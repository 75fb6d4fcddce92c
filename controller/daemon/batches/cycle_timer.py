"""Decides when the next scheduling cycle is due."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from controller.core.model.job import NEVER

CYCLE_SHARE = 0.5
"""The largest fraction of the main loop's time that scheduling cycles may take."""
CLOCK_CHECK_S = 60.0
"""The main loop reads the system clock at least once in this many seconds, because the clock can be set while
the loop waits.
"""

POSTPONED_S = 0.25
"""Seconds until the next cycle after a call of `postpone`."""


class CycleTimer:
    """Decides when a scheduling cycle is due: after a change of the state, on request, and when a timer of
    the engine is due.

    After a cycle of n seconds, the next cycle begins at least n seconds later (CYCLE_SHARE), unless it is
    requested.
    """

    def __init__(self, timer_at: Callable[[], float], now: Callable[[], float]) -> None:
        """`timer_at` returns the time at which the next timer of the engine is due; NEVER if none is set."""
        self.wanted = True
        """True if the state has changed since the last cycle."""
        self.earliest = 0.0
        """The earliest time (monotonic clock) of the next cycle."""
        self._timer_at = timer_at
        self._now = now
        self._requests: list[asyncio.Future[int]] = []

    def request(self) -> asyncio.Future[int]:
        """Make a cycle due now. Return a future, which gets the number of jobs that the cycle has placed."""
        placed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._requests.append(placed)
        self.make_due()
        return placed

    def make_due(self) -> None:
        """Make a cycle due now."""
        self.wanted, self.earliest = True, 0.0

    def postpone(self) -> None:
        """Make the next cycle due in POSTPONED_S seconds, because no job may start now."""
        self.wanted, self.earliest = True, time.monotonic() + POSTPONED_S

    def is_due(self) -> bool:
        wanted = self.wanted or self._timer_at() <= self._now()
        return wanted and time.monotonic() >= self.earliest

    def seconds_until_due(self) -> float | None:
        """Return the seconds until a cycle or a timer of the engine is due, or until the clock must be
        checked; None if there is nothing to do before the next input.
        """
        pause = self.earliest - time.monotonic()
        if self.wanted:
            return pause
        due = self._timer_at()
        return None if due == NEVER else max(pause, min(due - self._now(), CLOCK_CHECK_S))

    def cycle_ended(self, began: float, ended: float) -> list[asyncio.Future[int]]:
        """Record a cycle that ran from `began` to `ended` (monotonic clock). Return the futures of all
        requests for a cycle; the caller sets their results.
        """
        self.wanted = False
        self.earliest = ended + (ended - began) * (1 / CYCLE_SHARE - 1)
        answered, self._requests = self._requests, []
        return answered
