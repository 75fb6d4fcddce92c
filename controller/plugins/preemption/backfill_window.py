"""A preemption strategy that ends backfilled jobs when the time for which they were backfilled is over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.model.events.nominations import WINDOW
from controller.core.model.job import NEVER, Job


@dataclass(frozen=True, slots=True)
class WindowStrategy:
    """The `window` strategy stops running jobs that have run longer than predicted, for a waiting job that
    was in the queue before they started.

    Backfill with `estimate = "predicted"` starts a job before others because it is expected to end in time.
    The predicted end closes its window; for a job without a time limit and a prediction, the end after
    `[jobs] default_time_limit_s` does. With `estimate = "limit"` the time limit ends a job in its window, and
    the strategy stops only jobs without a limit.

    1. `standing` is the time of the placement, with the sign changed, so that the latest start is the lowest
       value. A job that has not run longer than predicted is never stopped.
    2. `reach` is the time since which the job waits, with the sign changed. So only jobs that were placed
       after that time may be stopped.

    Example: job 7 waits since 10:00 for 8 GPUs. Job 9 was placed at 11:00, predicted to run for 1 h. From
    12:00 on it may be stopped for job 7. Job 5, placed at 9:00, may not.
    """

    name: ClassVar[str] = WINDOW

    def standing(self, job: Job) -> float:
        """Return minus the time of the placement if the job has run longer than predicted, else NEVER."""
        return -job.placed_at if job.outlived and job.placed_at is not None else NEVER

    def reach(self, job: Job) -> float | None:
        """Return minus the time since which the job waits."""
        return -job.ready_at
