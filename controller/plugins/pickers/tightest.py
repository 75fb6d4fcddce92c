"""The fullest GPU that still has the share: the others stay as whole as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from controller.core.columns import Columns
from controller.core.requests import Part


@dataclass(frozen=True, slots=True)
class Tightest:
    """Best fit among the GPUs of a node."""

    name: ClassVar[str] = "tightest"

    def pick(self, part: Part, nodes: Columns, row: int, slots: Sequence[int]) -> int:
        """The one with the least free, the first among equals."""
        free = nodes.gpu_free[row]
        return min(slots, key=lambda slot: (free[slot], slot))
