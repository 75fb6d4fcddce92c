"""Preemption strategies that compare the priorities of jobs.

The priority of a waiting job is the requested priority. A running job is protected by the higher of two
priorities: its requested priority, and the priority of a job that depends on it (inherited priority).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.model.job import Job


@dataclass(frozen=True, slots=True)
class PriorityStrategy:
    """The `priority` strategy stops running jobs for a waiting job with a higher priority (0 to 100). The
    difference must be at least the option `gap`.
    """

    name: ClassVar[str] = "priority"

    least: int = 0
    """Only jobs with at least this priority may preempt others."""
    gap: int = 1
    """The victim's priority must be lower by at least this number. It must be 1 or more; otherwise two jobs
    could preempt each other in turn.
    """

    def standing(self, job: Job) -> float:
        """Return the priority that protects a running job: the higher one of the requested and the inherited
        priority.
        """
        return job.granted_priority

    def reach(self, job: Job) -> float | None:
        """Return the highest priority of running jobs that may be stopped for this waiting job: its priority
        minus `gap`. Return None if the priority of the waiting job is below the option `least`: such a job
        may stop no job.
        """
        return job.spec.priority - max(1, self.gap) if job.spec.priority >= self.least else None


@dataclass(frozen=True, slots=True)
class PressureStrategy:
    """The `pressure` strategy: waiting jobs with a priority above its option `most` may stop running jobs
    with a priority up to `most`.
    """

    name: ClassVar[str] = "pressure"

    most: int = 10
    """The highest priority of jobs that may be stopped."""

    @property
    def stops_for_all(self) -> int:
        """The highest priority of jobs that every waiting job with a higher priority may stop."""
        return self.most

    def standing(self, job: Job) -> float:
        """Return the priority that protects a running job: the higher one of the requested and the inherited
        priority.
        """
        return job.granted_priority

    def reach(self, job: Job) -> float | None:
        """Return the highest priority of running jobs that may be stopped for this waiting job: `most`.
        Return None if the priority of the waiting job is not above `most`: such a job may stop no job.
        """
        return self.most if job.spec.priority > self.most else None
