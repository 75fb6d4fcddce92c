"""The `multifactor` order: a weighted sum of factors from 0 to 1, the highest sum first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.fairshare.share_tree import SharePath
from controller.core.model.job import NEVER, Job
from controller.core.queue.order import OrderView
from controller.core.queue.queue import LaneGroup
from wire.api.reasons import Points
from wire.names import HIGHEST_PRIORITY


@dataclass(frozen=True, slots=True)
class MultifactorOrder:
    """Each job has points: the sum of weight * factor. The factors lie between 0 and 1:

    - priority: the priority / 100.
    - age: seconds waited / `age_full_s`.
    - fair_share: the tenant's fair-share factor; 0 above a soft limit.
    - size: GPUs of the job / GPUs of the cluster.
    - deadline: rises from 0 to 1 in the `deadline_from_s` seconds before the latest start that meets it.
    - queue: the priority of the queue. With weight 0, queues with a higher priority go before all factors.

    Example with the default weights: priority 50 (500), half of `age_full_s` waited (250), fair-share factor
    0.8 (800) and no deadline: 1550 points, plus at most 100 for the size.
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
        """True if the priority of the queue is one of the factors."""
        return self.queue > 0

    def rank(self, job: Job) -> tuple[float, ...]:
        """The time from which the job's age counts. Within a group the older job never has fewer points."""
        return (job.ages_from,)

    def group(self, job: Job, tenant: SharePath) -> LaneGroup:
        """Everything about the job that changes its points, except its age."""
        queue = (job.spec.queue,) if self.queue else ()
        return *tenant, job.priority, _last_start(job), *queue

    def place(self, job: Job, view: OrderView) -> tuple[float, ...]:
        """The negative of the points; the lowest value is first."""
        return (-sum(each.points for each in self.receipt(job, view)),)

    def receipt(self, job: Job, view: OrderView) -> tuple[Points, ...]:
        """The points that each factor gives the job. The sum of these points orders the jobs."""
        path = view.path(job)
        beyond = view.shares.over_soft_limit(path, view.now)
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
    """The latest start at which the job keeps its deadline with its whole time limit; NEVER without one."""
    if job.spec.deadline_at is None:
        return NEVER
    return job.spec.deadline_at - (job.spec.time_limit_s or 0.0)


def _points(name: str, factor: float, weight: float) -> Points:
    within = min(1.0, max(0.0, factor))
    return Points(name, within, weight, within * weight)
