"""The `shortest` order: shortest time limit first, then submit order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.model.job import Job


@dataclass(frozen=True, slots=True)
class ShortestFirstOrder:
    """Ranks by time limit; jobs without a limit are last."""

    name: ClassVar[str] = "shortest"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Lower is first."""
        return (job.limit,)
