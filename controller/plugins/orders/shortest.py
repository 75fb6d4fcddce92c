"""Shortest time limit first, then who came first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.jobs import Job


@dataclass(frozen=True, slots=True)
class Shortest:
    """By the time limit; jobs without one come last."""

    name: ClassVar[str] = "shortest"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Lower is first."""
        return (job.limit,)
