"""What the controller counts of itself, since it started: for whoever watches it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds: a cycle of an idle cluster takes less than the first, one of a huge queue about one."""


@dataclass(slots=True)
class Spread:
    """How long something took, and how often that long."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total_s: float = 0.0

    def add(self, seconds: float) -> None:
        """Once more."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total_s += seconds


@dataclass(slots=True)
class Tally:
    """Of one controller."""

    cycles: Spread = field(default_factory=Spread)
    commits: Spread = field(default_factory=Spread)
    entries: int = 0
    """Of the journal, written since it started."""
    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    """By method, path as the routes have it, and status."""

    def committed(self, entries: int, seconds: float) -> None:
        """A commit of so many entries is on disk."""
        self.entries += entries
        self.commits.add(seconds)
