"""The GPU from which a share takes least of what the node is worth to people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from controller.core.columns import Columns
from controller.core.requests import Part


@dataclass(frozen=True, slots=True)
class Thrift:
    """By the same appraisal as the scorer of that name."""

    name: ClassVar[str] = "thrift"

    def pick(self, part: Part, nodes: Columns, row: int, slots: Sequence[int]) -> int:
        """The one whose loss costs least, the first among equals."""
        return slots[0] if nodes.worth is None else nodes.worth().best_slot(part, row, slots)
