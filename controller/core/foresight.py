"""Starts that were foretold: kept on the job, scored when it starts; and what the errors say of the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

PROMISE, LATEST, LIKELY = "promise", "latest", "likely"
"""The start promised to the first that waits; the latest by limits; and the likely one by predictions."""
MOST = 8
"""Estimates that a job keeps."""
APART_S = 60.0
"""Who asks again so soon gets no other estimate on record."""
KEPT = 100
"""Errors that are remembered."""
TELLING = 10
"""Errors that it takes to say how wide a range is."""
PART = 0.1
"""So much of them lies on either side of it."""


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """When a job was to start, as was thought at some moment."""

    kind: str
    made_at: float
    start: float


@dataclass(slots=True)
class StartScore:
    """How estimates of one kind did; times are sums of seconds."""

    count: int = 0
    ahead_s: float = 0.0
    bias_s: float = 0.0
    """Start less estimate: above 0, jobs start later than foretold."""
    error_s: float = 0.0
    late: int = 0
    errors: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    """The last ones, as parts of how far ahead the estimate was."""

    def add(self, each: StartEstimate, started_at: float) -> None:
        """The job has started."""
        ahead, error = max(1.0, each.start - each.made_at), started_at - each.start
        self.count += 1
        self.ahead_s += each.start - each.made_at
        self.bias_s += error
        self.error_s += abs(error)
        self.late += error > 0
        self.errors.append(round(error / ahead, 4))

    def span(self, start: float, now: float) -> tuple[float, float] | None:
        """Between when and when a job starts of which this is said now, as 8 of 10 did; None: too few did."""
        if len(self.errors) < TELLING:
            return None
        ordered, ahead = sorted(self.errors), max(1.0, start - now)
        cut = int(PART * len(ordered))
        low, high = ordered[cut], ordered[-1 - cut]
        return max(now, start + low * ahead), max(now, start + high * ahead)

    def dump(self) -> list[object]:
        """As its note keeps it."""
        return [self.count, self.ahead_s, self.bias_s, self.error_s, self.late, *self.errors]


def load(kept: Sequence[float]) -> StartScore:
    """From its note."""
    count, ahead, bias, error, late, *errors = kept
    return StartScore(int(count), ahead, bias, error, int(late), deque(errors, KEPT))


def worth_keeping(known: Iterable[StartEstimate], kind: str, now: float) -> bool:
    """Is another estimate of a job's start to be kept beside those known?"""
    known = list(known)
    again = (each for each in known if each.kind == kind)
    return len(known) < MOST and all(now - each.made_at >= APART_S for each in again)
