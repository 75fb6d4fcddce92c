"""Queue orders by the service of jobs: the run time and GPU time that they have had. These orders need no
time limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.estimates.service_rates import (
    ServiceRates,
    bin_of,
    present_run_s,
    run_s_before,
    run_s_of,
)
from controller.core.fairshare.share_tree import SharePath
from controller.core.model.job import Job
from controller.core.queue.order import OrderView
from controller.core.queue.queue import LaneGroup

CLASS_RATIO = 1_000.0


@dataclass(frozen=True, slots=True)
class ExpectedRemainingOrder:
    """The `expected-remaining` order: the job that is expected to end after the fewest GPU-seconds is first.

    The GPU-seconds are the GPUs of the job times the seconds of run time for each end: the seconds that jobs
    with the same run time need on average until one of them ends (`ServiceRates`). For a waiting job, the
    cost of its restart is added.
    """

    name: ClassVar[str] = "expected-remaining"

    restart_cost_s: float = 60.0
    horizon_s: float = 3_600.0
    """The least time for which a started job is assumed to keep its GPUs."""

    def rank(self, job: Job) -> tuple[float, ...]:
        """Return an empty sort key for all jobs, so that jobs with the same group() are in submit order."""
        return ()

    def group(self, job: Job, tenant: SharePath) -> LaneGroup:
        """Return the range of run times (bin) in which the job is. Jobs of one bin are rated equally."""
        return (bin_of(run_s_of(job, job.submitted_at)),)

    def place(self, job: Job, view: OrderView) -> tuple[float, ...]:
        """Return the expected GPU-seconds until an end. The job with the lowest value is first."""
        return (max(job.spec.gpus, 1.0) * self.seconds_per_end(job, view.service_rates, view.now),)

    def seconds_per_end(self, job: Job, rates: ServiceRates, now: float) -> float:
        """Return the expected seconds for which GPUs must be given to jobs such as this until one of them
        ends.
        """
        extra_s = self.restart_cost_s if job.placed_at is None else 0.0
        return rates.seconds_per_end(job.spec.gpus, run_s_of(job, now), extra_s, self.horizon_s)


@dataclass(frozen=True, slots=True)
class AttainedServiceOrder:
    """The `attained-service` order: the jobs that have had the least GPU time are first.

    The GPU time is compared in classes, because jobs with nearly equal GPU time would otherwise take turns
    all the time. Class 0 has jobs with less than 10 GPU-minutes, and the limit of each later class is twice
    the one before. Jobs of one class are in submit order.
    """

    name: ClassVar[str] = "attained-service"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Return an empty sort key for all jobs, so that jobs of one class are in submit order."""
        return ()

    def group(self, job: Job, tenant: SharePath) -> LaneGroup:
        """Return the class of the job, which grows with the GPU time that the job has used. Inside a
        class, waiting jobs are in submit order.
        """
        return (self._class(job, job.submitted_at),)

    def place(self, job: Job, view: OrderView) -> tuple[float, ...]:
        """Return the class of the job, which grows with the GPU time that the job has used. The job
        with the lowest class is first.
        """
        return (float(self._class(job, view.now)),)

    def seconds_per_end(self, job: Job, rates: ServiceRates, now: float) -> float:
        """Return a number that is much greater for jobs of a higher class, so that each job of a lower class
        may take the place of jobs of higher classes.
        """
        return CLASS_RATIO ** self._class(job, now)

    def _class(self, job: Job, now: float) -> int:
        # Earlier attempts count with the GPUs that they had, because the number of GPUs may have been edited.
        # An attempt with a part of a GPU counts as one GPU.
        before_s = max(job.spent_gpu_s, run_s_before(job))
        return bin_of(before_s + max(job.spec.gpus, 1.0) * present_run_s(job, now))
