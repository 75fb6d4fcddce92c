"""Jobs that use what is left over make room for everybody else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.jobs import Job


@dataclass(frozen=True, slots=True)
class Pressure:
    """Only jobs of low priority are ended, and for whoever stands above all of those."""

    name: ClassVar[str] = "pressure"

    most: int = 10
    """Up to this priority jobs run as long as nobody else needs the room."""

    def standing(self, job: Job) -> float:
        """The priority it runs with."""
        return job.spec.priority

    def reach(self, job: Job) -> float | None:
        """All that is low, for all that is not."""
        return self.most if job.spec.priority > self.most else None
