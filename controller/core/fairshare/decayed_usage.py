"""Counters of used resources in which old use counts less. A counter needs no timer: its value is computed at
each read and at each change of its rate.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Self

HOUR_S = 3600.0
BUCKETS = 60
"""A sliding window is divided into this many parts."""
ROUNDING = 1e-9
"""A rate of use below this is a rounding error. It remains after all charges were subtracted."""


@dataclass(slots=True)
class DecayedUsage:
    """A usage counter with a half-life: a unit that was used one half-life ago counts half.

    Let the total be `amount` at the time `at`, with a constant rate of use r since then. The total at time t
    is then amount * k + r * longest_h * (1 - k). Here k = 2 ** -((t - at) / half-life). longest_h is the
    total after a very long time at the rate 1.
    """

    half_life_s: float
    amount: float = 0.0
    at: float = 0.0
    rate: float = 0.0
    longest_h: float = field(init=False, repr=False, compare=False)
    """The amount that a constant rate of one unit per hour reaches after a very long time."""

    def __post_init__(self) -> None:
        self.longest_h = self.half_life_s / HOUR_S / math.log(2.0)

    def total(self, now: float) -> float:
        if now <= self.at:
            return self.amount
        values = math.exp2((self.at - now) / self.half_life_s)
        return self.amount * values + self.rate * self.longest_h * (1.0 - values)

    def falls_to(self, amount: float, now: float) -> float:
        """Return the time at which the total falls to `amount`. The rate of use is assumed to stay the same.
        Return infinity if the total never falls this far.
        """
        lasting, total = self.rate * self.longest_h, self.total(now)
        if total <= amount:
            return now
        if amount <= lasting:
            return math.inf
        return now + self.half_life_s * math.log2((total - lasting) / (amount - lasting))

    def change(self, rate: float, now: float) -> None:
        """Add `rate` (units per hour; may be negative) to the rate of use, from now on."""
        self.amount, self.at = self.total(now), max(now, self.at)
        self.rate = total if (total := self.rate + rate) > ROUNDING else 0.0

    def dump(self) -> list[float]:
        """Return the values for the database row of this counter."""
        return [self.amount, self.at, self.rate]

    def load(self, values: list[float]) -> Self:
        self.amount, self.at, self.rate = values
        return self


@dataclass(slots=True)
class WindowedUsage:
    """A usage counter with a sliding time window: use that is older than the window does not count.

    The window is divided into BUCKETS equal parts. If only a fraction of the oldest part is still in the
    window, the same fraction of its use counts.
    """

    window_s: float
    buckets: deque[tuple[int, float]] = field(default_factory=deque)
    at: float = 0.0
    rate: float = 0.0

    @property
    def longest_h(self) -> float:
        """The length of the window in hours. This is also the total after a constant use of one unit per
        hour.
        """
        return self.window_s / HOUR_S

    def total(self, now: float) -> float:
        """Return how many units were used in the window that ends at `now`."""
        width = self.window_s / BUCKETS
        begin = now - self.window_s
        counted = 0.0
        for number, units in self.buckets:
            counted += units * min(1.0, max(0.0, (number + 1) - begin / width))
        return counted + self.rate * max(0.0, min(now - self.at, self.window_s)) / HOUR_S

    def falls_to(self, amount: float, now: float) -> float:
        """Return the time at which the total falls to `amount`. The rate of use is assumed to stay the same.
        Return infinity if the total never falls this far.
        """
        width = self.window_s / BUCKETS
        before, total = now, self.total(now)
        first = int(now // width) + 1
        edges = [number * width for number in range(first, first + BUCKETS + 2)]
        for moment in sorted([*edges, max(now, self.at + self.window_s)]):
            if total <= amount:
                return before
            then = self.total(moment)
            if then <= amount:
                # Interpolate between two moments at which the edge of a bucket (part of the window) leaves
                # the window. Between these moments, the total falls linearly.
                return before + (moment - before) * (total - amount) / (total - then)
            before, total = moment, then
        return math.inf

    def change(self, rate: float, now: float) -> None:
        """Add `rate` (units per hour; may be negative) to the rate of use, from now on."""
        self._settle(now)
        self.rate = total if (total := self.rate + rate) > ROUNDING else 0.0

    def _settle(self, now: float) -> None:
        """Add the use from the time `at` until `now` to the buckets (parts of the window) in which the use
        happened.
        """
        width = self.window_s / BUCKETS
        begin = max(self.at, now - self.window_s)
        while self.rate and begin < now:
            number = int(begin // width)
            end = min(now, (number + 1) * width)
            if end <= begin:
                # Rounding can put `begin` at the end of its bucket. Count the use in the next bucket then.
                number, end = number + 1, min(now, (number + 2) * width)
            self._add(number, self.rate * (end - begin) / HOUR_S)
            begin = end
        self.at = max(now, self.at)
        oldest = int((self.at - self.window_s) // width)
        while self.buckets and self.buckets[0][0] < oldest:
            self.buckets.popleft()

    def _add(self, number: int, units: float) -> None:
        if self.buckets and self.buckets[-1][0] == number:
            self.buckets[-1] = (number, self.buckets[-1][1] + units)
        else:
            self.buckets.append((number, units))

    def dump(self) -> list[float]:
        """Return the values for the database row of this counter."""
        flat = [value for bucket in self.buckets for value in bucket]
        return [self.at, self.rate, *flat]

    def load(self, values: list[float]) -> Self:
        self.at, self.rate = values[:2]
        self.buckets = deque(
            (int(number), units) for number, units in zip(values[2::2], values[3::2], strict=True)
        )
        return self
