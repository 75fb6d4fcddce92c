"""EASY backfill, in queue order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.framework.interfaces import Reserves


@dataclass(frozen=True, slots=True)
class Easy:
    """Jobs start if they do not delay the first waiting job."""

    name: ClassVar[str] = "easy"
    reserves: ClassVar[Reserves] = Reserves.FIRST_JOB
    starts_behind: ClassVar[bool] = True
    in_queue_order: ClassVar[bool] = True
    max_delay_s: ClassVar[None] = None
    depth: ClassVar[None] = None

    def candidate_key(self, runtime_s: float) -> float:
        """All alike: in queue order."""
        return 0.0
