"""Groups the jobs of a report by user and by job size (number of GPUs or processors), and computes
percentiles of their waits.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from controller.sim.job_results import SimulatedJob
from controller.sim.report.run import ReportRun

PARTS = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Percentiles:
    """The number, mean and maximum of some values, and their percentiles 5, 25, 50, 75 and 95."""

    count: int
    quantiles: tuple[float, ...]
    mean: float
    most: float

    @property
    def median(self) -> float:
        return self.quantiles[2]


def percentiles(values: Iterable[float]) -> Percentiles:
    """Compute the percentiles of some values. All are 0 if there are no values."""
    listed = np.array([*values], dtype=np.float64)
    if not len(listed):
        return Percentiles(0, (0.0,) * len(PARTS), 0.0, 0.0)
    quantiles = np.quantile(listed, PARTS, method="inverted_cdf")
    return Percentiles(len(listed), tuple(map(float, quantiles)), float(listed.mean()), float(listed.max()))


@dataclass(frozen=True)
class JobGroup:
    """The jobs of one user, or of one class of job sizes such as 3 to 4 GPUs."""

    name: str
    records: Sequence[SimulatedJob]
    used_s: float
    """GPU-seconds that the jobs used, or processor-seconds if the report counts processors."""
    waits: Percentiles
    slowdown: Percentiles


def by_user(run: ReportRun) -> list[JobGroup]:
    """Group the started jobs by user. The user with the most used GPU or processor time comes first."""
    found = _groups(run, {record.job: record.user for record in run.started})
    return sorted(found, key=lambda group: (-group.used_s, group.name))


def limit_groups(groups: Sequence[JobGroup], most: int) -> list[JobGroup]:
    """Return at most `most` groups. If there are more, keep the first `most` - 1, and combine all other
    groups into one group.
    """
    if len(groups) <= most:
        return [*groups]
    rest = [record for group in groups[most - 1 :] for record in group.records]
    name = f"{len(groups) - most + 1:,} others"
    return [*groups[: most - 1], _group(name, rest, sum(group.used_s for group in groups[most - 1 :]))]


def by_size(run: ReportRun) -> list[JobGroup]:
    """Group the started jobs by their number of GPUs or processors, the smallest first. The upper limit of
    each group is a power of two.
    """
    ranks = {record.job: rank(run.size(record)) for record in run.started}
    names = {record.job: size_name(ranks[record.job], run.unit) for record in run.started}
    order = {names[job]: ranks[job] for job in names}
    return sorted(_groups(run, names), key=lambda group: order[group.name])


def rank(size: float) -> int:
    """Return the number of the size class for a job with `size` GPUs or processors: -2 for size 0, -1 for a
    size between 0 and 1. For a size of 1 or more it is the binary logarithm of the size, rounded up.
    """
    if size <= 0:
        return -2
    return -1 if size < 1 else math.ceil(math.log2(size))


def size_name(place: int, unit: str) -> str:
    """Return the name of a size class, such as "3–4 GPUs". `place` is the number of the size class, as rank()
    returns it.
    """
    if place < 0:
        return f"part of a {unit}" if place == -1 else f"no {unit}"
    most = 2**place
    if place < 2:
        return f"{most} {unit}{'s' * place}"
    return f"{most // 2 + 1}–{most} {unit}s"


def _groups(run: ReportRun, names: dict[int, str]) -> list[JobGroup]:
    records: dict[str, list[SimulatedJob]] = defaultdict(list)
    for record in run.started:
        records[names[record.job]].append(record)
    return [
        _group(name, members, sum(run.held(record) * run.ran_s(record) for record in members))
        for name, members in records.items()
    ]


def _group(name: str, records: Sequence[SimulatedJob], used_s: float) -> JobGroup:
    waits, slowdowns = (
        percentiles(record.wait_s for record in records),
        percentiles(record.slowdown for record in records),
    )
    return JobGroup(name, records, used_s, waits, slowdowns)
