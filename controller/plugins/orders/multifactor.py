"""Several reasons to come first, each from 0 to 1 times its weight, added up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.jobs import Job
from controller.core.queue import Group
from controller.core.shares import Path
from controller.core.standing import View
from wire.api import Points
from wire.words import HIGHEST_PRIORITY


@dataclass(frozen=True, slots=True)
class Multifactor:
    """Most points first. `age_full_s` is the age that counts 1; older counts no more."""

    name: ClassVar[str] = "multifactor"

    priority: float = 1000.0
    age: float = 500.0
    fair_share: float = 1000.0
    size: float = 100.0
    age_full_s: float = 604_800.0

    def rank(self, job: Job) -> tuple[float, ...]:
        """All the same: in one group the older job never has fewer points."""
        return ()

    def group(self, job: Job, tenant: Path) -> Group:
        """Alike in everything but age."""
        return *tenant, job.priority

    def place(self, job: Job, view: View) -> tuple[float, ...]:
        """Lower is first."""
        return (-sum(each.points for each in self.receipt(job, view)),)

    def receipt(self, job: Job, view: View) -> tuple[Points, ...]:
        """What the points are made of; their sum, taken in this order, is what decides."""
        path = view.path(job)
        beyond = view.shares.beyond(path, view.now)
        fair = 0.0 if beyond else view.shares.factor(path, view.capacity, view.now)
        age = min(1.0, max(0.0, view.now - job.submitted_at) / self.age_full_s)
        gpus = job.ask.part.gpus * (job.ask.nodes or 1)
        return (
            _points("priority", job.priority / HIGHEST_PRIORITY, self.priority),
            _points("age", age, self.age),
            _points("fair_share", fair, self.fair_share),
            _points("size", min(1.0, gpus / view.gpus) if view.gpus else 0.0, self.size),
        )


def _points(name: str, factor: float, weight: float) -> Points:
    return Points(name, factor, weight, factor * weight)
