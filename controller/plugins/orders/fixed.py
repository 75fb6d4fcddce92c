"""Queue orders in which the rank of a job does not change while the job waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.model.job import NEVER, Job


@dataclass(frozen=True, slots=True)
class FifoOrder:
    """The `fifo` order: jobs are in submit order (first in, first out)."""

    name: ClassVar[str] = "fifo"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Return an empty sort key for all jobs, so that the submit order decides."""
        return ()


@dataclass(frozen=True, slots=True)
class PriorityOrder:
    """The `priority` order: jobs with the highest priority (0 to 100) are first. Jobs with equal priorities
    are in submit order.
    """

    name: ClassVar[str] = "priority"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Return the negative of the priority, because the job with the lowest value is first."""
        return (-job.priority,)


@dataclass(frozen=True, slots=True)
class ShortestFirstOrder:
    """The `shortest` order: jobs with the shortest time limit are first. Jobs with equal time limits are in
    submit order, and jobs without a time limit are last.
    """

    name: ClassVar[str] = "shortest"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Return the time limit in seconds; the job with the lowest value is first."""
        return (job.limit,)


@dataclass(frozen=True, slots=True)
class DeadlineOrder:
    """The `deadline` order: jobs with the earliest deadline are first. Jobs without a deadline are last."""

    name: ClassVar[str] = "deadline"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Return the deadline in Unix time, or NEVER if the job has none. The job with the lowest value is
        first.
        """
        return (NEVER if job.spec.deadline_at is None else job.spec.deadline_at,)
