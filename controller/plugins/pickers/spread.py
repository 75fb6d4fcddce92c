"""The `spread` picker takes a share from the emptiest GPU, so that shares disturb each other least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from controller.core.cluster.node_table import NodeTable
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class SpreadPicker:
    """The opposite of `tightest`."""

    name: ClassVar[str] = "spread"

    def pick(self, part: PerNodeRequest, nodes: NodeTable, row: int, slots: Sequence[int]) -> int:
        """The slot with the most free; the first among equals."""
        free = nodes.gpu_free[row]
        return max(slots, key=lambda slot: (free[slot], -slot))
