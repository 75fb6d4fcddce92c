"""The `fair` order: jobs of the tenant with the least usage for its share come first."""

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
    """Compares weight / (usage + 1) from the top of the share tree down; within one user, submit order."""

    name: ClassVar[str] = "fair"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Equal for all jobs: the submit order decides."""
        return ()

    def group(self, job: Job, tenant: SharePath) -> LaneGroup:
        """The jobs of one tenant, which keep their submit order."""
        return tenant

    def place(self, job: Job, view: OrderView) -> tuple[float, ...]:
        """Lower is first. Tenants above a soft limit come after all others."""
        path = view.path(job)
        fairness = [-each for each in view.shares.fairness(path, view.now)]
        return (
            float(view.shares.over_soft_limit(path, view.now)),
            *fairness,
            *[0.0] * (LEVELS - len(fairness)),
        )
