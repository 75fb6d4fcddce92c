"""The `priority` order: highest priority first, then submit order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.model.job import Job


@dataclass(frozen=True, slots=True)
class PriorityOrder:
    """Ranks by priority, 0 to 100."""

    name: ClassVar[str] = "priority"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Lower is first."""
        return (-job.priority,)
