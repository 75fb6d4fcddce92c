"""Preemption strategies that compare the priorities of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.model.job import Job


@dataclass(frozen=True, slots=True)
class PriorityStrategy:
    """The `priority` strategy stops jobs with a clearly lower priority.

    Compares the priorities of jobs, 0 to 100.
    """

    name: ClassVar[str] = "priority"

    least: int = 0
    """Only jobs with at least this priority may preempt others."""
    gap: int = 1
    """By how much the victim's priority must be lower; at least 1, so that jobs do not preempt in circles."""

    def standing(self, job: Job) -> float:
        """The priority of the running job."""
        return job.spec.priority

    def reach(self, job: Job) -> float | None:
        """The priority of the waiting job minus the gap; None below `least`."""
        return job.spec.priority - max(1, self.gap) if job.spec.priority >= self.least else None


@dataclass(frozen=True, slots=True)
class PressureStrategy:
    """The `pressure` strategy stops low-priority jobs for any job above them.

    Stops only jobs with a priority of at most `most`, and only for jobs with a higher priority.
    """

    name: ClassVar[str] = "pressure"

    most: int = 10
    """The highest priority of jobs that may be stopped."""

    def standing(self, job: Job) -> float:
        """The priority of the running job."""
        return job.spec.priority

    def reach(self, job: Job) -> float | None:
        """`most` for jobs above it; None for others."""
        return self.most if job.spec.priority > self.most else None
