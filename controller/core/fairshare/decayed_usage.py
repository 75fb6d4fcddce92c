"""Use in units that decays with time. It is computed when it is read or its rate changes, without timers."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Self

HOUR_S = 3600.0
BUCKETS = 60
"""The number of parts into which a window is divided."""


@dataclass(slots=True)
class DecayedUsage:
    """Use with a half-life: a unit that was used one half-life ago counts half.

    With a constant rate r since `at`, the total at time t is amount * k + r * longest_h * (1 - k), where
    k = 2 ** -((t - at) / half-life).
    """

    half_life_s: float
    amount: float = 0.0
    at: float = 0.0
    rate: float = 0.0

    def total(self, now: float) -> float:
        """The units that count at this time."""
        if now <= self.at:
            return self.amount
        values = math.exp2((self.at - now) / self.half_life_s)
        return self.amount * values + self.rate * self.longest_h * (1.0 - values)

    @property
    def longest_h(self) -> float:
        """The hours of steady use that count after a very long time."""
        return self.half_life_s / HOUR_S / math.log(2.0)

    def falls_to(self, amount: float, now: float) -> float:
        """The time at which the total is at most this amount at the present rate; may be never."""
        lasting, total = self.rate * self.longest_h, self.total(now)
        if total <= amount:
            return now
        if amount <= lasting:
            return math.inf
        return now + self.half_life_s * math.log2((total - lasting) / (amount - lasting))

    def change(self, rate: float, now: float) -> None:
        """Add to the units per hour, from now on."""
        self.amount, self.at = self.total(now), max(now, self.at)
        self.rate = _clean(self.rate + rate)

    def dump(self) -> list[float]:
        """The values for its row."""
        return [self.amount, self.at, self.rate]

    def load(self, values: list[float]) -> Self:
        """Take the values of a row."""
        self.amount, self.at, self.rate = values
        return self


@dataclass(slots=True)
class WindowedUsage:
    """Use in a sliding window: use before the window does not count.

    The window is divided into BUCKETS parts. The oldest part counts with the fraction that is in the window.
    """

    window_s: float
    buckets: deque[tuple[int, float]] = field(default_factory=deque)
    at: float = 0.0
    rate: float = 0.0

    @property
    def longest_h(self) -> float:
        """The hours of steady use that count after a very long time."""
        return self.window_s / HOUR_S

    def total(self, now: float) -> float:
        """The units that count at this time."""
        width = self.window_s / BUCKETS
        begin = now - self.window_s
        counted = 0.0
        for number, units in self.buckets:
            counted += units * min(1.0, max(0.0, (number + 1) - begin / width))
        return counted + self.rate * max(0.0, min(now - self.at, self.window_s)) / HOUR_S

    def falls_to(self, amount: float, now: float) -> float:
        """The time at which the total is at most this amount at the present rate; may be never."""
        width = self.window_s / BUCKETS
        before, total = now, self.total(now)
        first = int(now // width) + 1
        edges = [number * width for number in range(first, first + BUCKETS + 2)]
        for moment in sorted([*edges, max(now, self.at + self.window_s)]):
            if total <= amount:
                return before
            then = self.total(moment)
            if then <= amount:  # interpolate, because the total falls linearly between two edges
                return before + (moment - before) * (total - amount) / (total - then)
            before, total = moment, then
        return math.inf

    def change(self, rate: float, now: float) -> None:
        """Add to the units per hour, from now on."""
        self._settle(now)
        self.rate = _clean(self.rate + rate)

    def _settle(self, now: float) -> None:
        """Add the use since `at` to the buckets of the time at which it happened."""
        width = self.window_s / BUCKETS
        begin = max(self.at, now - self.window_s)
        while self.rate and begin < now:
            number = int(begin // width)
            end = min(now, (number + 1) * width)
            if end <= begin:  # because of rounding at the edge of a bucket
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
        """The values for its row."""
        flat = [value for bucket in self.buckets for value in bucket]
        return [self.at, self.rate, *flat]

    def load(self, values: list[float]) -> Self:
        """Take the values of a row."""
        self.at, self.rate = values[:2]
        self.buckets = deque(
            (int(number), units) for number, units in zip(values[2::2], values[3::2], strict=True)
        )
        return self


def _clean(rate: float) -> float:
    """The rate, or 0 if it is only a rounding error left after all charges were subtracted."""
    return rate if rate > 1e-9 else 0.0
