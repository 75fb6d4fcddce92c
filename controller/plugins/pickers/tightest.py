"""The `tightest` picker takes a share from the fullest GPU that still has it, which keeps others whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from controller.core.cluster.node_table import NodeTable
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class TightestPicker:
    """Best fit among the GPUs of a node."""

    name: ClassVar[str] = "tightest"

    def pick(self, part: PerNodeRequest, nodes: NodeTable, row: int, slots: Sequence[int]) -> int:
        """The slot with the least free; the first among equals."""
        free = nodes.gpu_free[row]
        return min(slots, key=lambda slot: (free[slot], slot))
