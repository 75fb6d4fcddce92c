"""The emptiest GPU: shares disturb each other least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from controller.core.columns import Columns
from controller.core.requests import Part


@dataclass(frozen=True, slots=True)
class Spread:
    """The opposite of the tightest."""

    name: ClassVar[str] = "spread"

    def pick(self, part: Part, nodes: Columns, row: int, slots: Sequence[int]) -> int:
        """The one with the most free, the first among equals."""
        free = nodes.gpu_free[row]
        return max(slots, key=lambda slot: (free[slot], -slot))
