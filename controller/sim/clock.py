"""A clock of one's own: what is to happen, in the order in which it will."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

Rank = float
Happening = Callable[[], Any]


class Clock:
    """Virtual time. At the same moment the lower rank comes first, then what was arranged first."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._heap: list[tuple[float, Rank, int, Happening]] = []
        self._sequence = 0

    def at(self, when: float, happening: Happening, rank: Rank = 0) -> None:
        """Let something happen then; what should have happened already happens next."""
        self._sequence += 1
        heapq.heappush(self._heap, (max(when, self.now), rank, self._sequence, happening))

    def after(self, seconds: float, happening: Happening) -> None:
        """Let something happen so much later."""
        self.at(self.now + seconds, happening)

    @property
    def next_at(self) -> float:
        """When the next thing happens."""
        return self._heap[0][0] if self._heap else math.inf

    def step(self) -> bool:
        """The next thing happens; False when there is none."""
        if not self._heap:
            return False
        self.now, _, _, happening = heapq.heappop(self._heap)
        happening()
        return True
