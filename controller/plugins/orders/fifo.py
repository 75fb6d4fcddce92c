"""Who came first is first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.jobs import Job


@dataclass(frozen=True, slots=True)
class Fifo:
    """By submit order alone."""

    name: ClassVar[str] = "fifo"

    def rank(self, job: Job) -> tuple[float, ...]:
        """All the same: the submit order breaks the tie."""
        return ()
