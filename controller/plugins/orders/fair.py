"""The `fair` order: jobs of the tenant that has used the least in relation to its share are first."""

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
    """Orders jobs by weight / (usage + 1) of their tenant, the greatest first. The value of the organisation
    decides, on a tie that of the project, then that of the user.

    The jobs of one user keep their submit order.
    """

    name: ClassVar[str] = "fair"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Return an empty sort key for all jobs, so that jobs of one user stay in submit order."""
        return ()

    def group(self, job: Job, tenant: SharePath) -> LaneGroup:
        """Return the tenant of the job, because jobs of one tenant keep their submit order."""
        return tenant

    def place(self, job: Job, view: OrderView) -> tuple[float, ...]:
        """Return the sort key of the job; the lowest is first. Jobs of tenants above a soft limit are last.
        Otherwise the tenant's weight / (usage + 1) at each level of the share tree decides.
        """
        path = view.path(job)
        fairness = [-each for each in view.shares.fairness(path, view.now)]
        return (
            float(view.shares.over_soft_limit(path, view.now)),
            *fairness,
            *[0.0] * (LEVELS - len(fairness)),
        )
