"""Highest priority first, and waiting raises it: nobody waits for ever behind those who come later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.jobs import Job
from controller.core.queue import Group
from controller.core.shares import Path
from controller.core.standing import View

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Aging:
    """By priority and `per_hour` for every hour waited, up to `ceiling`; who is above it does not rise."""

    name: ClassVar[str] = "aging"

    per_hour: float = 1.0
    ceiling: float = 70.0

    def rank(self, job: Job) -> tuple[float, ...]:
        """Of one priority, the older is never behind."""
        return (job.ages_from,)

    def group(self, job: Job, tenant: Path) -> Group:
        """Alike in everything but age."""
        return (job.priority,)

    def place(self, job: Job, view: View) -> tuple[float, ...]:
        """Lower is first."""
        aged = job.priority + self.per_hour * max(0.0, view.now - job.ages_from) / HOUR_S
        return (-max(job.priority, min(self.ceiling, aged)),)
