"""The `fair` order: jobs of the tenant that has used least in relation to its share are first."""

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
    """Compares weight / (usage + 1) of two tenants, level by level from the top of the share tree.

    The jobs of one user are in submit order.
    """

    name: ClassVar[str] = "fair"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Equal for all jobs: the submit order decides."""
        return ()

    def group(self, job: Job, tenant: SharePath) -> LaneGroup:
        """The tenant of the job: jobs of one tenant keep their submit order."""
        return tenant

    def place(self, job: Job, view: OrderView) -> tuple[float, ...]:
        """The sort key, lowest first: above a soft limit or not, then the fairness at each level."""
        path = view.path(job)
        fairness = [-each for each in view.shares.fairness(path, view.now)]
        return (
            float(view.shares.over_soft_limit(path, view.now)),
            *fairness,
            *[0.0] * (LEVELS - len(fairness)),
        )
