"""The `multifactor` order: jobs are ordered by a weighted sum of factors from 0 to 1, the highest sum
first.
"""

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
    """The `multifactor` order sorts jobs by their points: the sum of weight * factor over these factors, each
    between 0 and 1:

    - priority: the priority / 100.
    - age: seconds waited / `age_full_s`.
    - fair_share: the fair-share factor of the job's user; 0 above a soft limit.
    - size: GPUs of the job / GPUs of the cluster. The factor is 0 if two conditions hold. The user has used
      more than its part of its project's usage while another user of the project waits
      (`OrderView.rationed`), and the job requests more GPUs than the project's fair share of the cluster.
    - deadline: rises from 0 to 1 in the `deadline_from_s` seconds before the latest start that meets the
      job's deadline.
    - queue: the priority of the queue. If the weight is 0, all jobs of a queue with a higher priority come
      first instead.

    Example with the default weights: a job has priority 50 (500 points), has waited half of `age_full_s`
    (250), has the fair-share factor 0.8 (800) and no deadline. It has 1550 points, plus at most 100 for its
    size.
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
    def compares_shares(self) -> bool:
        """True if the fair-share factor adds points, so that the usage of tenants matters."""
        return self.fair_share > 0

    @property
    def weighs_queues(self) -> bool:
        """True if the priority of the queue adds points."""
        return self.queue > 0

    def rank(self, job: Job) -> tuple[float, ...]:
        """Return the Unix time from which the job's age is counted, usually its submit time. Jobs with the
        same group() are sorted by this time.
        """
        return (job.ages_from,)

    def group(self, job: Job, tenant: SharePath) -> LaneGroup:
        """Return the properties, except the age, in which the points of jobs with equal requests can differ.
        Jobs that are equal in them are sorted by their age alone.
        """
        queue = (job.spec.queue,) if self.queue else ()
        return *tenant, job.priority, _last_start(job), *queue

    def place(self, job: Job, view: OrderView) -> tuple[float, ...]:
        """Return the negative of the job's points, because the job with the lowest value is first."""
        return (-sum(each.points for each in self.receipt(job, view)),)

    def receipt(self, job: Job, view: OrderView) -> tuple[Points, ...]:
        """Return the points of the job by factor. Jobs are ordered by the sum of these points."""
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
            _points("size", _size(path, gpus, view), self.size),
            _points("deadline", 1.0 - (_last_start(job) - view.now) / self.deadline_from_s, self.deadline),
            *queue,
        )


def _size(path: SharePath, gpus: float, view: OrderView) -> float:
    """Return the size factor of a job with `gpus` GPUs. `path` is the path of the job's user in the
    fair-share tree.
    """
    if not view.gpus or (path in view.rationed and gpus > view.shares.fair_rate(path[:-1], view.gpus)):
        return 0.0
    return gpus / view.gpus


def _last_start(job: Job) -> float:
    """Return the latest start time with which the job meets its deadline if it runs for its whole time limit.
    Return NEVER if the job has no deadline.
    """
    if job.spec.deadline_at is None:
        return NEVER
    return job.spec.deadline_at - (job.spec.time_limit_s or 0.0)


def _points(name: str, factor: float, weight: float) -> Points:
    within = min(1.0, max(0.0, factor))
    return Points(name, within, weight, within * weight)
