"""The `priority` strategy stops jobs with a clearly lower priority."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.model.job import Job


@dataclass(frozen=True, slots=True)
class PriorityStrategy:
    """Compares the priorities of jobs, 0 to 100."""

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
