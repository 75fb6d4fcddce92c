"""Orders in which the rank of a job does not change while the job waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.model.job import NEVER, Job


@dataclass(frozen=True, slots=True)
class FifoOrder:
    """The `fifo` order: jobs are in submit order (first in, first out)."""

    name: ClassVar[str] = "fifo"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Equal for all jobs: the submit order decides."""
        return ()


@dataclass(frozen=True, slots=True)
class PriorityOrder:
    """The `priority` order: the highest priority (0 to 100) is first, then submit order."""

    name: ClassVar[str] = "priority"

    def rank(self, job: Job) -> tuple[float, ...]:
        """The negative of the priority; the lowest value is first."""
        return (-job.priority,)


@dataclass(frozen=True, slots=True)
class ShortestFirstOrder:
    """The `shortest` order: the shortest time limit is first, then submit order. No limit is last."""

    name: ClassVar[str] = "shortest"

    def rank(self, job: Job) -> tuple[float, ...]:
        """The time limit in seconds; the lowest value is first."""
        return (job.limit,)


@dataclass(frozen=True, slots=True)
class DeadlineOrder:
    """The `deadline` order: the earliest deadline is first. Jobs without a deadline are last."""

    name: ClassVar[str] = "deadline"

    def rank(self, job: Job) -> tuple[float, ...]:
        """The deadline as a time; the lowest value is first."""
        return (NEVER if job.spec.deadline_at is None else job.spec.deadline_at,)
