"""Jobs by user and by size, and how their waits are spread."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from controller.sim.report.run import Run
from controller.sim.results import Life

PARTS = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Spread:
    """Values in short: what 5, 25, 50, 75 and 95 of a hundred stay at or below."""

    count: int
    quantiles: tuple[float, ...]
    mean: float
    most: float

    @property
    def median(self) -> float:
        """Half are at or below."""
        return self.quantiles[2]


def spread(values: Iterable[float]) -> Spread:
    """The spread of some values, zeros of none."""
    listed = np.array([*values], dtype=np.float64)
    if not len(listed):
        return Spread(0, (0.0,) * len(PARTS), 0.0, 0.0)
    quantiles = np.quantile(listed, PARTS, method="inverted_cdf")
    return Spread(len(listed), tuple(map(float, quantiles)), float(listed.mean()), float(listed.max()))


@dataclass(frozen=True)
class Group:
    """Some jobs with something in common."""

    name: str
    lives: Sequence[Life]
    used_s: float
    """GPU-seconds or processor-seconds."""
    waits: Spread
    slowdown: Spread


def by_user(run: Run) -> list[Group]:
    """Who used the most first."""
    found = _groups(run, {life.job: life.user for life in run.started})
    return sorted(found, key=lambda group: (-group.used_s, group.name))


def gathered(groups: Sequence[Group], most: int) -> list[Group]:
    """At most so many groups: all that come after are one."""
    if len(groups) <= most:
        return [*groups]
    rest = [life for group in groups[most - 1 :] for life in group.lives]
    name = f"{len(groups) - most + 1:,} others"
    return [*groups[: most - 1], _group(name, rest, sum(group.used_s for group in groups[most - 1 :]))]


def by_size(run: Run) -> list[Group]:
    """The smallest first; a class ends at each power of two."""
    ranks = {life.job: rank(run.size(life)) for life in run.started}
    names = {life.job: size_name(ranks[life.job], run.unit) for life in run.started}
    order = {names[job]: ranks[job] for job in names}
    return sorted(_groups(run, names), key=lambda group: order[group.name])


def rank(size: float) -> int:
    """-2 for nothing, -1 for less than one, else how many doublings there are from one."""
    if size <= 0:
        return -2
    return -1 if size < 1 else math.ceil(math.log2(size))


def size_name(place: int, unit: str) -> str:
    """What a size class is called."""
    if place < 0:
        return f"part of a {unit}" if place == -1 else f"no {unit}"
    most = 2**place
    if place < 2:
        return f"{most} {unit}{'s' * place}"
    return f"{most // 2 + 1}–{most} {unit}s"


def _groups(run: Run, names: dict[int, str]) -> list[Group]:
    lives: dict[str, list[Life]] = defaultdict(list)
    for life in run.started:
        lives[names[life.job]].append(life)
    return [
        _group(name, members, sum(run.held(life) * run.ran_s(life) for life in members))
        for name, members in lives.items()
    ]


def _group(name: str, lives: Sequence[Life], used_s: float) -> Group:
    waits, slowdowns = spread(life.wait_s for life in lives), spread(life.slowdown for life in lives)
    return Group(name, lives, used_s, waits, slowdowns)
