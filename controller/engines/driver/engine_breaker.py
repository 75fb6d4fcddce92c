"""Stops the use of an execution engine that fails again and again, until one look at the engine succeeds."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 300.0


@dataclass(slots=True)
class EngineBreaker:
    """The circuit breaker of one engine.

    1. A failed look counts as a failure. So does a successful look if an ask() has failed since the look
       before. Any other successful look sets the count to 0 and closes the breaker.
    2. After `most` failures in a row the breaker is open: no requests about single jobs are made, and the
       nodes of the engine count as disconnected, so that jobs start elsewhere.
    3. While the breaker is open, one look is tried after each pause. The pause doubles up to LONGEST_PAUSE_S.

    Example: with `most` = 3 and failures at 0, 10 and 20 s, the breaker opens at 20 s. The next looks are at
    30, 50 and 90 s.
    """

    most: int = 3
    failures: int = 0
    why: str = ""
    since: float = 0.0
    """The time of the first of the failures in a row."""
    look_at: float = 0.0
    """The earliest time of the next look while the breaker is open."""
    opened: int = 0
    """How often the breaker has opened since the controller's start."""

    @property
    def is_open(self) -> bool:
        return self.failures >= self.most

    def fail(self, why: str, now: float) -> None:
        """Count a failed look or a failed ask(), with the reason `why`."""
        if not self.failures:
            self.since = now
        self.failures += 1
        self.why = why
        if self.is_open:
            self.opened += self.failures == self.most
            doublings = min(self.failures - self.most, 10)
            self.look_at = now + min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**doublings)

    def succeed(self) -> None:
        """Close the breaker after a successful look."""
        self.failures, self.why, self.look_at = 0, "", 0.0

    def may_look(self, now: float) -> bool:
        """Return whether a look at the engine may be tried now."""
        return not self.is_open or now >= self.look_at
