"""The preemption strategy that ends backfilled jobs that run longer than predicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.model.events.nominations import WINDOW
from controller.core.model.job import NEVER, Job


@dataclass(frozen=True, slots=True)
class WindowStrategy:
    """The `window` strategy stops jobs that have run longer than predicted, for a waiting job that was in the
    queue before their start.

    With `estimate = "predicted"`, backfill starts a job before jobs that are ahead of it in the queue,
    because the job is expected to end in time. The window of a job is the time from its start to its
    predicted end. For a job without a time limit and without a prediction, the window lasts for `[jobs]
    default_time_limit_s`. With `estimate = "limit"`, time limits end jobs within their windows, so the
    strategy stops only jobs without a limit.

    1. `standing` is the negative of the placement time, so the job that was placed last has the lowest value.
       For a job that has not run longer than predicted, it is NEVER, so this job is not stopped.
    2. `reach` is the negative of the time at which the waiting job began to wait. So only jobs that were
       placed later may be stopped.

    Example: job 7 has waited since 10:00 for 8 GPUs. Job 9 was placed at 11:00 and is predicted to run for 1
    h. From 12:00 on, job 9 may be stopped for job 7. Job 5, which was placed at 9:00, may not be stopped.
    """

    name: ClassVar[str] = WINDOW

    def standing(self, job: Job) -> float:
        """Return the negative of the placement time (Unix time) if the job has run longer than predicted,
        NEVER if not.
        """
        return -job.placed_at if job.outlived and job.placed_at is not None else NEVER

    def reach(self, job: Job) -> float | None:
        """Return the negative of the Unix time at which the job began to wait."""
        return -job.ready_at
