"""Chances that fall the same way everywhere: random() is the one draw every Python keeps as it is."""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate
from typing import Generic, TypeVar

T = TypeVar("T")


class Dice:
    """Draws for one purpose. Purposes have dice of their own, so that a change to one leaves the others."""

    def __init__(self, *seed: object) -> None:
        # A text is hashed with SHA-512 into the seed, also where hash() differs from process to process.
        self.roll = random.Random("/".join(map(str, seed))).random  # noqa: S311 - no secrets

    def between(self, low: float, high: float) -> float:
        """Uniform in [low, high)."""
        return low + (high - low) * self.roll()

    def chance(self, part: float) -> bool:
        """True in `part` of all cases."""
        return self.roll() < part

    def normal(self) -> float:
        """The standard normal distribution, by Box and Muller."""
        return math.sqrt(-2 * math.log(1 - self.roll())) * math.cos(math.tau * self.roll())

    def lognormal(self, median: float, sigma: float) -> float:
        """Log-normal around `median`; `sigma` is the spread of the logarithm."""
        return median * math.exp(sigma * self.normal())

    def count(self, mean: float) -> int:
        """Geometric: 1, 2, 3 … with the given mean."""
        return 1 + int(math.log(1 - self.roll()) / math.log(1 - 1 / mean)) if mean > 1 else 1


class Odds(Generic[T]):
    """Things to choose from, each as likely as its weight."""

    def __init__(self, weighted: Sequence[tuple[T, float]]) -> None:
        self.things = [thing for thing, _ in weighted]
        self._up_to = list(accumulate(weight for _, weight in weighted))

    def draw(self, dice: Dice) -> T:
        """One of them."""
        place = bisect(self._up_to, dice.roll() * self._up_to[-1])
        return self.things[min(place, len(self.things) - 1)]


def zipf(things: Sequence[T], exponent: float = 1.0) -> Odds[T]:
    """The first the most likely, the n-th n**exponent times less."""
    return Odds([(thing, rank**-exponent) for rank, thing in enumerate(things, 1)])
