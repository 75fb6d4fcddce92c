"""The `fair` order: jobs of the tenant with the least usage in proportion to its weight are first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.fairshare.share_tree import SharePath
from controller.core.model.job import Job
from controller.core.queue.order import OrderView
from controller.core.queue.queue import LaneGroup

LEVELS = 3


@dataclass(frozen=True, slots=True)
class FairShareOrder:
    """The `fair` order: the job of the tenant with the greatest value of weight / (usage + 1) is first.

    First the values of the jobs' organisations are compared, then those of their projects, and then those of
    their users. Jobs of tenants above a soft limit come after all other jobs. The jobs of one user stay in
    submit order.
    """

    name: ClassVar[str] = "fair"
    compares_shares: ClassVar[bool] = True

    def rank(self, job: Job) -> tuple[float, ...]:
        """Return an empty sort key for all jobs, so that jobs of one user stay in submit order."""
        return ()

    def group(self, job: Job, tenant: SharePath) -> LaneGroup:
        """Return the tenant (organisation, project and user) of the job. Jobs of one tenant stay in submit
        order."""
        return tenant

    def place(self, job: Job, view: OrderView) -> tuple[float, ...]:
        """Return the sort key of the job; the job with the lowest key is first. The first part of the key is
        1 for jobs of tenants above a soft limit, 0 for other jobs. The other parts are the negatives of
        weight / (usage + 1) of the job's organisation, project and user.
        """
        path = view.path(job)
        fairness = [-each for each in view.shares.fairness(path, view.now)]
        return (
            float(view.shares.over_soft_limit(path, view.now)),
            *fairness,
            *[0.0] * (LEVELS - len(fairness)),
        )
