"""Earliest deadline first; jobs without one come last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.jobs import NEVER, Job


@dataclass(frozen=True, slots=True)
class Deadline:
    """By the moment at which the job must be over."""

    name: ClassVar[str] = "deadline"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Lower is first."""
        return (NEVER if job.spec.deadline_at is None else job.spec.deadline_at,)
