"""Projects get back what they have lent: `[quota] reclaim = "preempt"`."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from controller.core.dues import Dues, Ground, lent_dues
from controller.core.jobs import Job
from controller.core.state import State


@dataclass(frozen=True, slots=True)
class ReclaimLent:
    """A job within its project's own quota may have jobs ended of projects that have borrowed."""

    name: ClassVar[str] = "reclaim"

    def standing(self, _job: Job) -> float:
        """All alike: borrowed is borrowed, whatever the priority."""
        return 0.0

    def reach(self, _job: Job) -> float | None:
        """All of them."""
        return 0.0

    def group(self, job: Job, _state: State) -> Hashable:
        """Its project."""
        return job.spec.project

    def dues(self, job: Job, ground: Ground) -> Dues | None:
        """Who has borrowed."""
        return lent_dues(ground, job)
