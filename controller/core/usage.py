"""How much was used, in units, and how it fades. No timer: it is settled whenever the rate changes."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Self

HOUR_S = 3600.0
BUCKETS = 60
"""Parts that a hard window is counted in."""


@dataclass(slots=True)
class Fading:
    """What was used a half-life ago counts half."""

    half_life_s: float
    amount: float = 0.0
    at: float = 0.0
    rate: float = 0.0

    def total(self, now: float) -> float:
        """What is left of it, and what the present rate has brought since."""
        if now <= self.at:
            return self.amount
        kept = math.exp2((self.at - now) / self.half_life_s)
        return self.amount * kept + self.rate * self.longest_h * (1.0 - kept)

    @property
    def longest_h(self) -> float:
        """Hours of steady use that would count in the end."""
        return self.half_life_s / HOUR_S / math.log(2.0)

    def falls_to(self, amount: float, now: float) -> float:
        """When no more than this is left, if the rate stays as it is; maybe never."""
        lasting, total = self.rate * self.longest_h, self.total(now)
        if total <= amount:
            return now
        if amount <= lasting:
            return math.inf
        return now + self.half_life_s * math.log2((total - lasting) / (amount - lasting))

    def change(self, rate: float, now: float) -> None:
        """So much more (or less) is used per hour from now on."""
        self.amount, self.at = self.total(now), max(now, self.at)
        self.rate = _clean(self.rate + rate)

    def dump(self) -> list[float]:
        """As its row keeps it."""
        return [self.amount, self.at, self.rate]

    def load(self, kept: list[float]) -> Self:
        """From its row."""
        self.amount, self.at, self.rate = kept
        return self


@dataclass(slots=True)
class Windowed:
    """What was used longer ago than the window does not count at all."""

    window_s: float
    buckets: deque[tuple[int, float]] = field(default_factory=deque)
    at: float = 0.0
    rate: float = 0.0

    @property
    def longest_h(self) -> float:
        """Hours of steady use that would count in the end."""
        return self.window_s / HOUR_S

    def total(self, now: float) -> float:
        """The part of each bucket that the window still covers, and what came since."""
        width = self.window_s / BUCKETS
        begin = now - self.window_s
        counted = 0.0
        for number, units in self.buckets:
            counted += units * min(1.0, max(0.0, (number + 1) - begin / width))
        return counted + self.rate * max(0.0, min(now - self.at, self.window_s)) / HOUR_S

    def falls_to(self, amount: float, now: float) -> float:
        """When no more than this is left, if the rate stays as it is; maybe never."""
        width = self.window_s / BUCKETS
        before, total = now, self.total(now)
        first = int(now // width) + 1
        edges = [number * width for number in range(first, first + BUCKETS + 2)]
        for moment in sorted([*edges, max(now, self.at + self.window_s)]):
            if total <= amount:
                return before
            then = self.total(moment)
            if then <= amount:  # between two of these it falls evenly
                return before + (moment - before) * (total - amount) / (total - then)
            before, total = moment, then
        return math.inf

    def change(self, rate: float, now: float) -> None:
        """So much more (or less) is used per hour from now on."""
        self._settle(now)
        self.rate = _clean(self.rate + rate)

    def _settle(self, now: float) -> None:
        """What the rate brought goes into the buckets it was used in."""
        width = self.window_s / BUCKETS
        begin = max(self.at, now - self.window_s)
        while self.rate and begin < now:
            number = int(begin // width)
            end = min(now, (number + 1) * width)
            if end <= begin:  # rounding at a bucket's very edge
                number, end = number + 1, min(now, (number + 2) * width)
            self._pour(number, self.rate * (end - begin) / HOUR_S)
            begin = end
        self.at = max(now, self.at)
        oldest = int((self.at - self.window_s) // width)
        while self.buckets and self.buckets[0][0] < oldest:
            self.buckets.popleft()

    def _pour(self, number: int, units: float) -> None:
        if self.buckets and self.buckets[-1][0] == number:
            self.buckets[-1] = (number, self.buckets[-1][1] + units)
        else:
            self.buckets.append((number, units))

    def dump(self) -> list[float]:
        """As its row keeps it."""
        flat = [value for bucket in self.buckets for value in bucket]
        return [self.at, self.rate, *flat]

    def load(self, kept: list[float]) -> Self:
        """From its row."""
        self.at, self.rate = kept[:2]
        self.buckets = deque(
            (int(number), units) for number, units in zip(kept[2::2], kept[3::2], strict=True)
        )
        return self


def _clean(rate: float) -> float:
    """What is left of a sum of charges after all of them were taken back is rounding."""
    return rate if rate > 1e-9 else 0.0
