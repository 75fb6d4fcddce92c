"""Backfill without reservations: whatever fits starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.framework.interfaces import Reserves


@dataclass(frozen=True, slots=True)
class Greedy:
    """Every job starts that fits. A large job may wait forever behind small ones."""

    name: ClassVar[str] = "greedy"
    reserves: ClassVar[Reserves] = Reserves.NO_JOB
    starts_behind: ClassVar[bool] = True
    in_queue_order: ClassVar[bool] = True
    max_delay_s: ClassVar[None] = None
    depth: ClassVar[None] = None

    def candidate_key(self, runtime_s: float) -> float:
        """All alike: in queue order."""
        return 0.0
