"""The `deadline` order: earliest deadline first, jobs without a deadline last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.model.job import NEVER, Job


@dataclass(frozen=True, slots=True)
class DeadlineOrder:
    """Ranks by the time at which the job must have ended."""

    name: ClassVar[str] = "deadline"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Lower is first."""
        return (NEVER if job.spec.deadline_at is None else job.spec.deadline_at,)
