"""The strategy of `[quota] reclaim = "preempt"`: projects get back quota that others have borrowed."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from controller.core.model.job import Job
from controller.core.preemption.fairshare_reclaim import ReclaimContext, ReclaimPolicy, quota_reclaim
from controller.core.state.state import State


@dataclass(frozen=True, slots=True)
class QuotaReclaimStrategy:
    """Stops jobs of projects that borrowed, for jobs within their own project's quota (QuotaReclaim)."""

    name: ClassVar[str] = "reclaim"

    def standing(self, _job: Job) -> float:
        """The same for all running jobs, because priority does not matter for borrowed quota."""
        return 0.0

    def reach(self, _job: Job) -> float | None:
        """The standing of all jobs."""
        return 0.0

    def group(self, job: Job, _state: State) -> Hashable:
        """The project of the job."""
        return job.spec.project

    def reclaim_policy(self, job: Job, ground: ReclaimContext) -> ReclaimPolicy | None:
        """The policy for this job; None if its project is not within its own quota with it."""
        return quota_reclaim(ground, job)
