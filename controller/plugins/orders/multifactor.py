"""Several reasons to come first, each from 0 to 1 times its weight, added up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.jobs import NEVER, Job
from controller.core.queue import Group
from controller.core.shares import Path
from controller.core.standing import View
from wire.api.reasons import Points
from wire.words import HIGHEST_PRIORITY


@dataclass(frozen=True, slots=True)
class Multifactor:
    """Most points first.

    `age_full_s` is the age that counts 1; older counts no more. A deadline begins to count `deadline_from_s`
    before the last moment at which the job could still start in time, and counts 1 then. With a weight for
    the `queue`, its priority is one reason among these; without one it stands above all of them.
    """

    name: ClassVar[str] = "multifactor"

    priority: float = 1000.0
    age: float = 500.0
    fair_share: float = 1000.0
    size: float = 100.0
    deadline: float = 1000.0
    queue: float = 0.0
    age_full_s: float = 604_800.0
    deadline_from_s: float = 86_400.0

    @property
    def weighs_queues(self) -> bool:
        """Does a queue's priority count here, and not before everything else?"""
        return self.queue > 0

    def rank(self, job: Job) -> tuple[float, ...]:
        """In one group the older job never has fewer points."""
        return (job.ages_from,)

    def group(self, job: Job, tenant: Path) -> Group:
        """Alike in everything but age."""
        queue = (job.spec.queue,) if self.queue else ()
        return *tenant, job.priority, _last_start(job), *queue

    def place(self, job: Job, view: View) -> tuple[float, ...]:
        """Lower is first."""
        return (-sum(each.points for each in self.receipt(job, view)),)

    def receipt(self, job: Job, view: View) -> tuple[Points, ...]:
        """What the points are made of; their sum, taken in this order, is what decides."""
        path = view.path(job)
        beyond = view.shares.beyond(path, view.now)
        gpus = job.ask.part.gpus * (job.ask.nodes or 1)
        queue = (_points("queue", view.queue(job), self.queue),) if self.queue else ()
        return (
            _points("priority", job.priority / HIGHEST_PRIORITY, self.priority),
            _points("age", (view.now - job.ages_from) / self.age_full_s, self.age),
            _points(
                "fair_share",
                0.0 if beyond else view.shares.factor(path, view.capacity, view.now),
                self.fair_share,
            ),
            _points("size", gpus / view.gpus if view.gpus else 0.0, self.size),
            _points("deadline", 1.0 - (_last_start(job) - view.now) / self.deadline_from_s, self.deadline),
            *queue,
        )


def _last_start(job: Job) -> float:
    """When it has to start to be over in time, if it takes as long as it may."""
    if job.spec.deadline_at is None:
        return NEVER
    return job.spec.deadline_at - (job.spec.time_limit_s or 0.0)


def _points(name: str, factor: float, weight: float) -> Points:
    within = min(1.0, max(0.0, factor))
    return Points(name, within, weight, within * weight)
