"""Conservative backfill: every waiting job has a reservation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.framework.interfaces import Reserves


@dataclass(frozen=True, slots=True)
class Conservative:
    """Jobs start if they delay no job before them."""

    name: ClassVar[str] = "conservative"
    reserves: ClassVar[Reserves] = Reserves.ALL_JOBS
    starts_behind: ClassVar[bool] = True
    in_queue_order: ClassVar[bool] = True
    max_delay_s: ClassVar[None] = None

    depth: int | None = None
    """The most waiting jobs that get a reservation; None for all."""

    def candidate_key(self, runtime_s: float) -> float:
        """All alike: in queue order."""
        return 0.0
