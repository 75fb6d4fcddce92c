"""The `fifo` order: submit order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.model.job import Job


@dataclass(frozen=True, slots=True)
class FifoOrder:
    """First in, first out."""

    name: ClassVar[str] = "fifo"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Equal for all jobs: the submit order decides."""
        return ()
