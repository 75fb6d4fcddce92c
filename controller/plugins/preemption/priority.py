"""A job may have those ended that are clearly less important."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.jobs import Job


@dataclass(frozen=True, slots=True)
class Priority:
    """By the jobs' priorities, 0 to 100."""

    name: ClassVar[str] = "priority"

    least: int = 0
    """From this priority on a job may have others ended."""
    gap: int = 1
    """How much lower the priority of these has to be; never less than 1, or jobs would oust in circles."""

    def standing(self, job: Job) -> float:
        """The priority it runs with."""
        return job.spec.priority

    def reach(self, job: Job) -> float | None:
        """Everything that is lower by the gap."""
        return job.spec.priority - max(1, self.gap) if job.spec.priority >= self.least else None
