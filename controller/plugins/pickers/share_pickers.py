"""The pickers: each chooses the GPU of a node that gives a share of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from controller.core.cluster.node_table import NodeTable
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class TightestPicker:
    """The `tightest` picker takes a share from the fullest GPU that still has it, which keeps others whole.

    Best fit among the GPUs of a node.
    """

    name: ClassVar[str] = "tightest"

    def pick(self, part: PerNodeRequest, nodes: NodeTable, row: int, slots: Sequence[int]) -> int:
        """The slot with the least free; the first among equals."""
        free = nodes.gpu_free[row]
        return min(slots, key=lambda slot: (free[slot], slot))


@dataclass(frozen=True, slots=True)
class SpreadPicker:
    """The `spread` picker takes a share from the emptiest GPU, so that shares disturb each other least.

    The opposite of `tightest`.
    """

    name: ClassVar[str] = "spread"

    def pick(self, part: PerNodeRequest, nodes: NodeTable, row: int, slots: Sequence[int]) -> int:
        """The slot with the most free; the first among equals."""
        free = nodes.gpu_free[row]
        return max(slots, key=lambda slot: (free[slot], -slot))


@dataclass(frozen=True, slots=True)
class GpuValuePicker:
    """The `thrift` picker takes a share from the GPU where that costs the least value.

    Uses the same model as the `thrift` scorer: core/cluster/gpu_value.py.
    """

    name: ClassVar[str] = "thrift"

    def pick(self, part: PerNodeRequest, nodes: NodeTable, row: int, slots: Sequence[int]) -> int:
        """The slot where the share costs least; the first among equals."""
        return slots[0] if nodes.gpu_value is None else nodes.gpu_value().best_slot(part, row, slots)
