"""Highest priority first, then who came first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.jobs import Job


@dataclass(frozen=True, slots=True)
class Priority:
    """By the job's priority, 0 to 100."""

    name: ClassVar[str] = "priority"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Lower is first."""
        return (-job.priority,)
