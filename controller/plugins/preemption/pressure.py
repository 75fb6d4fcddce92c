"""The `pressure` strategy stops low-priority jobs for any job above them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.model.job import Job


@dataclass(frozen=True, slots=True)
class PressureStrategy:
    """Stops only jobs with a priority of at most `most`, and only for jobs with a higher priority."""

    name: ClassVar[str] = "pressure"

    most: int = 10
    """The highest priority of jobs that may be stopped."""

    def standing(self, job: Job) -> float:
        """The priority of the running job."""
        return job.spec.priority

    def reach(self, job: Job) -> float | None:
        """`most` for jobs above it; None for others."""
        return self.most if job.spec.priority > self.most else None
