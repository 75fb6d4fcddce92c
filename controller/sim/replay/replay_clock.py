"""A virtual clock, which runs scheduled callbacks in the order of their times."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

Rank = float
Callback = Callable[[], Any]


class Clock:
    """Virtual time in seconds, with callbacks that run at set times.

    Callbacks with the same time run in the order of their ranks, the lowest first. If the ranks are equal
    too, they run in the order in which they were scheduled.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._heap: list[tuple[float, Rank, int, Callback]] = []
        self._sequence = 0

    def at(self, when: float, callback: Callback, rank: Rank = 0) -> None:
        """Schedule a callback for the time `when`, or for the current time if `when` is in the past."""
        self._sequence += 1
        heapq.heappush(self._heap, (max(when, self.now), rank, self._sequence, callback))

    def after(self, seconds: float, callback: Callback) -> None:
        self.at(self.now + seconds, callback)

    @property
    def next_at(self) -> float:
        """Return the virtual time of the next callback; infinity if no callback is scheduled."""
        return self._heap[0][0] if self._heap else math.inf

    def step(self) -> bool:
        """Set the time to that of the next callback, and run the callback. Return False if no callback is
        scheduled."""
        if not self._heap:
            return False
        self.now, _, _, callback = heapq.heappop(self._heap)
        callback()
        return True
