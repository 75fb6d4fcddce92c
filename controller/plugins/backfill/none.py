"""No backfill: strictly in queue order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.framework.interfaces import Reserves


@dataclass(frozen=True, slots=True)
class NoBackfill:
    """No job starts while a job before it waits. The reservation of the first tells when it will start."""

    name: ClassVar[str] = "none"
    reserves: ClassVar[Reserves] = Reserves.FIRST_JOB
    starts_behind: ClassVar[bool] = False
    in_queue_order: ClassVar[bool] = True
    max_delay_s: ClassVar[None] = None
    depth: ClassVar[None] = None

    def candidate_key(self, runtime_s: float) -> float:
        """All alike: in queue order."""
        return 0.0
