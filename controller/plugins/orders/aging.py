"""The `aging` order: the highest priority is first, and a job's priority rises while the job waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.fairshare.share_tree import SharePath
from controller.core.model.job import Job
from controller.core.queue.order import OrderView
from controller.core.queue.queue import LaneGroup

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class AgingOrder:
    """The `aging` order: the priority of a waiting job rises by `per_hour` points for each hour of waiting,
    up to `ceiling`. The job with the highest priority is first.
    """

    name: ClassVar[str] = "aging"

    per_hour: float = 1.0
    ceiling: float = 70.0

    def rank(self, job: Job) -> tuple[float, ...]:
        """Return the Unix time from which the job's age is counted, usually its submit time. Jobs with the
        same group() are sorted by this time.
        """
        return (job.ages_from,)

    def group(self, job: Job, tenant: SharePath) -> LaneGroup:
        """Return the priority of the job without the points for its age. Jobs with the same priority gain
        points equally fast, so they keep their order while they wait.
        """
        return (job.priority,)

    def place(self, job: Job, view: OrderView) -> tuple[float, ...]:
        """Return the sort key of the job at the time `view.now`: the negative of its priority, including the
        points for its age. The job with the lowest key is first.
        """
        aged = job.priority + self.per_hour * max(0.0, view.now - job.ages_from) / HOUR_S
        return (-max(job.priority, min(self.ceiling, aged)),)
