"""Preemption strategies that compare the priorities of jobs.

A waiting job counts with its requested priority. A running job is protected by the higher of two priorities:
its requested priority, and the priority that it inherits from a job that depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.model.job import Job


@dataclass(frozen=True, slots=True)
class PriorityStrategy:
    """The `priority` strategy stops running jobs for a waiting job whose priority (0 to 100) is higher by at
    least the option `gap`.
    """

    name: ClassVar[str] = "priority"

    least: int = 0
    """Only waiting jobs with at least this priority may preempt running jobs."""
    gap: int = 1
    """The priority of a victim must be lower by at least this number. The number is 1 or more, because
    otherwise two jobs could preempt each other in turn.
    """

    def standing(self, job: Job) -> float:
        """Return the priority that protects a running job: the higher one of the requested and the inherited
        priority.
        """
        return job.granted_priority

    def reach(self, job: Job) -> float | None:
        """Return the highest priority of running jobs that may be stopped for this waiting job: its priority
        minus `gap`. Return None, so that no job is stopped, if its priority is below the option `least`.
        """
        return job.spec.priority - max(1, self.gap) if job.spec.priority >= self.least else None


@dataclass(frozen=True, slots=True)
class PressureStrategy:
    """The `pressure` strategy: a waiting job with a priority above the option `most` may stop running jobs
    with a priority up to `most`.
    """

    name: ClassVar[str] = "pressure"

    most: int = 10
    """The highest priority of jobs that may be stopped."""

    @property
    def stops_for_all(self) -> int:
        """The option `most`: every waiting job with a higher priority may stop jobs up to this priority."""
        return self.most

    def standing(self, job: Job) -> float:
        """Return the priority that protects a running job: the higher one of the requested and the inherited
        priority.
        """
        return job.granted_priority

    def reach(self, job: Job) -> float | None:
        """Return the highest priority of running jobs that may be stopped for this waiting job: `most`.
        Return None, so that no job is stopped, if the priority of the waiting job is not above `most`.
        """
        return self.most if job.spec.priority > self.most else None
