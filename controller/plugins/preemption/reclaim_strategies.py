"""Preemption strategies that take resources back for a tenant: its fair share, or quota that it lent to other
projects.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from controller.core.model.job import Job
from controller.core.preemption.fairshare_reclaim import (
    ReclaimContext,
    ReclaimPolicy,
    fair_share_reclaim,
    is_exempt,
    quota_reclaim,
)
from controller.core.quota.queue_rules import EXEMPT_FAIR_SHARE, EXEMPT_QUOTA
from controller.core.state.state import State


@dataclass(frozen=True, slots=True)
class FairShareStrategy:
    """The `fair` strategy stops jobs of tenants far above their fair share, so that jobs of tenants below
    their fair share can start.

    The strategy compares the resources that organisations, projects and users hold now, in billing units (see
    FairShareReclaim).
    """

    name: ClassVar[str] = "fair"

    threshold: float = 1.25
    """Jobs of a tenant may be stopped if the tenant holds more than its fair share times this factor (1 or
    more).
    """
    most: int = 100
    """Jobs with a higher priority than this are never stopped for fair share."""

    def __post_init__(self) -> None:
        if not 1 <= self.threshold <= 1_000:
            raise ValueError(
                "threshold must be at least 1: reclaim must not push a tenant below its fair share"
            )

    def standing(self, job: Job) -> float:
        """Return the priority that protects a running job: the higher one of the requested and the inherited
        priority.
        """
        return job.granted_priority

    def reach(self, _job: Job) -> float | None:
        """Return the highest priority of running jobs that may be stopped: the option `most`. The priority of
        the waiting job does not matter, because the fair share of its tenant decides."""
        return self.most

    def group(self, job: Job, state: State) -> Hashable:
        """Return the tenant of a waiting job, because all jobs of a tenant are treated alike. Return None if
        the job's queue is exempt from fair share.
        """
        return None if is_exempt(state, job, EXEMPT_FAIR_SHARE) else state.tenant(job)

    def reclaim_policy(self, job: Job, ground: ReclaimContext) -> ReclaimPolicy | None:
        """Return the object that decides which running jobs may be stopped for this waiting job by fair
        share. Return None, so that no job is stopped, if the start of the waiting job would take its tenant
        above its fair share.
        """
        return fair_share_reclaim(ground, job, self.threshold)


@dataclass(frozen=True, slots=True)
class QuotaReclaimStrategy:
    """The strategy of `[quota] reclaim = "preempt"`: projects get back quota that other projects borrowed.

    The strategy stops jobs of projects with borrowed quota, so that jobs within the quota of their own
    project can start (see QuotaReclaim).
    """

    name: ClassVar[str] = "reclaim"

    def standing(self, _job: Job) -> float:
        """Return 0 for all running jobs, because their priority does not matter for borrowed quota."""
        return 0.0

    def reach(self, _job: Job) -> float | None:
        """Return 0, so that every running job (`standing` 0) may be stopped, whatever its priority."""
        return 0.0

    def group(self, job: Job, state: State) -> Hashable:
        """Return the project of a waiting job, because projects borrow quota from each other. Return None if
        the job's queue is exempt from the quotas of projects.
        """
        return None if is_exempt(state, job, EXEMPT_QUOTA) else job.spec.project

    def reclaim_policy(self, job: Job, ground: ReclaimContext) -> ReclaimPolicy | None:
        """Return the object that decides which running jobs may be stopped for this waiting job by quota.
        Return None, so that no job is stopped, if the waiting job would exceed the quota of its project.
        """
        return quota_reclaim(ground, job)
