"""Pauses the orders of a shape in a zone after a pool could not provide such a machine."""

from __future__ import annotations

from dataclasses import dataclass, field

LONGEST_S = 3_600.0
Key = tuple[str, str]
"""The names of a machine shape and of a zone."""


@dataclass(slots=True)
class BackOff:
    """The pauses of one pool. The pause of a shape in a zone doubles with each failure, from `first_s` to
    LONGEST_S. Failures during a pause do not count. After a machine has joined, the next pause is `first_s`
    again.
    """

    first_s: float
    why: dict[Key, str] = field(default_factory=dict)
    failures: int = 0
    """The number of failures since the controller's start."""
    _until: dict[Key, float] = field(default_factory=dict)
    _counts: dict[Key, int] = field(default_factory=dict)

    def fail(self, shape: str, zone: str, why: str, now: float) -> None:
        """Record that the pool could not provide a machine."""
        key = shape, zone
        self.failures += 1
        if self.paused(shape, zone, now):
            # This machine was ordered before the pause began, so do not lengthen the pause.
            return
        count = self._counts.get(key, 0)
        self._until[key] = now + min(LONGEST_S, self.first_s * 2 ** min(count, 20))
        self._counts[key], self.why[key] = count + 1, why

    def succeed(self, shape: str, zone: str) -> None:
        """Record that a machine has joined."""
        for each in (self._until, self._counts, self.why):
            each.pop((shape, zone), None)

    def paused(self, shape: str, zone: str, now: float) -> bool:
        """Return whether machines of this shape in this zone are not to be ordered now."""
        return now < self._until.get((shape, zone), 0.0)
