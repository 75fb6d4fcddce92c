"""Preemption strategies that compare the priorities of jobs.

A waiting job preempts by the priority that it requests. A running job inherits the priority of a more
important job that waits for it, and is protected by the higher of the two priorities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.model.job import Job


@dataclass(frozen=True, slots=True)
class PriorityStrategy:
    """The `priority` strategy stops running jobs whose priority (0 to 100) is lower than that of the waiting
    job, by at least the number of points that its option `gap` sets.
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
        minus `gap`. None if its priority is below the option `least`, so that it may stop no job.
        """
        return job.spec.priority - max(1, self.gap) if job.spec.priority >= self.least else None


@dataclass(frozen=True, slots=True)
class PressureStrategy:
    """The `pressure` strategy compares priorities with its option `most`: a waiting job with a higher
    priority may stop running jobs whose priority is not higher.
    """

    name: ClassVar[str] = "pressure"

    most: int = 10
    """The highest priority of jobs that may be stopped."""

    def standing(self, job: Job) -> float:
        """Return the priority that protects a running job: the higher one of the requested and the inherited
        priority.
        """
        return job.granted_priority

    def reach(self, job: Job) -> float | None:
        """Return the option `most`, which is the highest priority of jobs that may be stopped. None if the
        waiting job's priority is not higher, so that the job may stop no other job.
        """
        return self.most if job.spec.priority > self.most else None
