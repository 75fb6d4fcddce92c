"""Preemption strategies that reclaim resources for a tenant: by fair share, and by borrowed quota."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from controller.core.model.job import Job
from controller.core.preemption.fairshare_reclaim import (
    ReclaimContext,
    ReclaimPolicy,
    fair_share_reclaim,
    quota_reclaim,
)
from controller.core.state.state import State


@dataclass(frozen=True, slots=True)
class FairShareStrategy:
    """The `fair` strategy stops jobs of tenants far above their fair share for tenants below theirs.

    It compares what organisations, projects and users hold now, in billing units (see FairShareReclaim).
    """

    name: ClassVar[str] = "fair"

    threshold: float = 1.25
    """A tenant that holds more than this many times its fair share gives resources back; at least 1."""
    most: int = 100
    """Jobs with a higher priority than this are never stopped for fair share."""

    def __post_init__(self) -> None:
        if not 1 <= self.threshold <= 1_000:
            raise ValueError(
                "threshold must be at least 1: reclaim must not push a tenant below its fair share"
            )

    def standing(self, job: Job) -> float:
        """The priority of the running job."""
        return job.spec.priority

    def reach(self, _job: Job) -> float | None:
        """`most` for all waiting jobs, because fair share decides and not their priority."""
        return self.most

    def group(self, job: Job, state: State) -> Hashable:
        """The tenant of the job, because fair share belongs to tenants."""
        return state.tenant(job)

    def reclaim_policy(self, job: Job, ground: ReclaimContext) -> ReclaimPolicy | None:
        """The policy for this job; None if its tenant would exceed its own fair share with it."""
        return fair_share_reclaim(ground, job, self.threshold)


@dataclass(frozen=True, slots=True)
class QuotaReclaimStrategy:
    """The strategy of `[quota] reclaim = "preempt"`: projects get back quota that other projects borrowed.

    It stops jobs of projects that borrowed, for jobs within their own project's quota (see QuotaReclaim).
    """

    name: ClassVar[str] = "reclaim"

    def standing(self, _job: Job) -> float:
        """0 for all running jobs, because priority does not matter for borrowed quota."""
        return 0.0

    def reach(self, _job: Job) -> float | None:
        """0, the standing of all jobs, so that every job is a candidate."""
        return 0.0

    def group(self, job: Job, _state: State) -> Hashable:
        """The project of the job, because projects borrow quota."""
        return job.spec.project

    def reclaim_policy(self, job: Job, ground: ReclaimContext) -> ReclaimPolicy | None:
        """The policy for this job; None if the job would exceed the quota of its project."""
        return quota_reclaim(ground, job)
