"""EASY backfill that may delay the first waiting job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.framework.interfaces import Reserves


@dataclass(frozen=True, slots=True)
class Aggressive:
    """As easy, but backfilled jobs may delay the first waiting job by `max_delay_s` in total."""

    name: ClassVar[str] = "aggressive"
    reserves: ClassVar[Reserves] = Reserves.FIRST_JOB
    starts_behind: ClassVar[bool] = True
    in_queue_order: ClassVar[bool] = True

    max_delay_s: float = 600.0
    """The most seconds by which backfilled jobs may delay the first waiting job, in total."""
    depth: ClassVar[None] = None

    def candidate_key(self, runtime_s: float) -> float:
        """All alike: in queue order."""
        return 0.0
