"""EASY backfill, shortest job first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.framework.interfaces import Reserves


@dataclass(frozen=True, slots=True)
class EasySjbf:
    """As easy, but the shortest job is tried first."""

    name: ClassVar[str] = "easy-sjbf"
    reserves: ClassVar[Reserves] = Reserves.FIRST_JOB
    starts_behind: ClassVar[bool] = True
    in_queue_order: ClassVar[bool] = False
    max_delay_s: ClassVar[None] = None
    depth: ClassVar[None] = None

    def candidate_key(self, runtime_s: float) -> float:
        """The expected run time."""
        return runtime_s
