"""Reproducible random numbers. They are all computed from random.random(), whose sequence is the same in
every Python version.
"""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate
from typing import Generic, TypeVar

T = TypeVar("T")


class RandomStream:
    """A sequence of random numbers. Each purpose, such as users or jobs, has a separate sequence.

    Therefore, if a change of the program draws more numbers for one purpose, the numbers for the other
    purposes stay the same.
    """

    def __init__(self, *seed: object) -> None:
        # Use a string as the seed, because Python derives the same sequence from a string on every machine
        # and in every version.
        self.uniform = random.Random("/".join(map(str, seed))).random  # noqa: S311 - no secrets

    def between(self, low: float, high: float) -> float:
        """Return a uniform random number from the range low <= x < high."""
        return low + (high - low) * self.uniform()

    def chance(self, part: float) -> bool:
        return self.uniform() < part

    def normal(self) -> float:
        """Return a random number from the standard normal distribution (Box-Muller method)."""
        return math.sqrt(-2 * math.log(1 - self.uniform())) * math.cos(math.tau * self.uniform())

    def lognormal(self, median: float, sigma: float) -> float:
        """Return a log-normal random number with this median; `sigma` is the standard deviation of its
        logarithm."""
        return median * math.exp(sigma * self.normal())

    def count(self, mean: float) -> int:
        """Return a random number 1, 2, 3 … from the geometric distribution with this mean."""
        return 1 + int(math.log(1 - self.uniform()) / math.log(1 - 1 / mean)) if mean > 1 else 1


class WeightedChoice(Generic[T]):
    """Objects with weights, from which one can be chosen at random."""

    def __init__(self, weighted: Sequence[tuple[T, float]]) -> None:
        self.things = [thing for thing, _ in weighted]
        self._up_to = list(accumulate(weight for _, weight in weighted))

    def draw(self, rng: RandomStream) -> T:
        """Choose one object at random, with a probability in proportion to its weight."""
        index = bisect(self._up_to, rng.uniform() * self._up_to[-1])
        return self.things[min(index, len(self.things) - 1)]


def zipf(things: Sequence[T], exponent: float = 1.0) -> WeightedChoice[T]:
    """Return a random choice by Zipf's law: the object at position n (from 1) has the weight n**-exponent."""
    return WeightedChoice([(thing, rank**-exponent) for rank, thing in enumerate(things, 1)])
