"""Counters and histograms for /metrics. They count since the start of the controller."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from controller.core.model.events.attempts import AttemptExited, MembersExited
from controller.core.model.events.event import Event

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram buckets, in seconds. A pass takes less than 0.5 ms if idle, and 1 s for a
huge queue."""


@dataclass(slots=True)
class Histogram:
    """A histogram of durations in seconds for /metrics. BOUNDS are the upper limits of its buckets."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total_s: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total_s += seconds


@dataclass(frozen=True, slots=True)
class SchedulingPass:
    """A scheduling pass: its begin in seconds since 1970, its duration, and the number of jobs it placed."""

    at: float
    seconds: float
    placed: int


@dataclass(slots=True)
class ControllerCounters:
    """The counters of one controller process for /metrics, such as requests and commits."""

    cycles: Histogram = field(default_factory=Histogram)
    last_pass: SchedulingPass | None = None
    """The latest scheduling pass; None before the first one."""
    commits: Histogram = field(default_factory=Histogram)
    entries: int = 0
    """Number of journal entries written."""
    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    """Number of requests by method, path pattern and status."""

    failures: Counter[str] = field(default_factory=Counter)
    """Number of failed attempts by failure class; each node of a job counts."""

    def observe(self, events: Iterable[Event]) -> None:
        """Count the failures in the events of a commit."""
        for event in events:
            if isinstance(event, AttemptExited | MembersExited):
                self.failures.update(how.failure for how in event.exits.values() if how.failure)

    def passed(self, at: float, seconds: float, placed: int) -> None:
        """Count a scheduling pass."""
        self.cycles.add(seconds)
        self.last_pass = SchedulingPass(at, seconds, placed)

    def committed(self, entries: int, seconds: float) -> None:
        """Count a commit that is on disk: its journal entries, and the seconds that it took."""
        self.entries += entries
        self.commits.add(seconds)
