"""The pickers: each chooses the GPU of a node for a job that requests part of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from controller.core.cluster.node_table import NodeTable
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class TightestPicker:
    """The `tightest` picker: of the GPUs with enough free capacity, it chooses the GPU with the smallest free
    part. So other GPUs stay wholly free.
    """

    name: ClassVar[str] = "tightest"

    def pick(self, part: PerNodeRequest, nodes: NodeTable, row: int, slots: Sequence[int]) -> int:
        """Return the index on the node of the GPU with the smallest free part; of several such GPUs, the
        first.
        """
        free = nodes.gpu_free[row]
        return min(slots, key=lambda slot: (free[slot], slot))


@dataclass(frozen=True, slots=True)
class SpreadPicker:
    """The `spread` picker chooses the GPU with the largest free part, so that jobs on one GPU disturb each
    other less.
    """

    name: ClassVar[str] = "spread"

    def pick(self, part: PerNodeRequest, nodes: NodeTable, row: int, slots: Sequence[int]) -> int:
        """Return the index on the node of the GPU with the largest free part; of several such GPUs, the
        first.
        """
        free = nodes.gpu_free[row]
        return max(slots, key=lambda slot: (free[slot], -slot))


@dataclass(frozen=True, slots=True)
class GpuValuePicker:
    """The `thrift` picker chooses the GPU on which the placement reduces the value of the free GPUs for later
    jobs the least.

    The value of free GPUs for later jobs is computed as for the `thrift` scorer (cluster/gpus/gpu_value.py).
    """

    name: ClassVar[str] = "thrift"

    def pick(self, part: PerNodeRequest, nodes: NodeTable, row: int, slots: Sequence[int]) -> int:
        """Return the index on the node of the GPU that loses the least value for later jobs; of several such
        GPUs, the first.
        """
        return slots[0] if nodes.gpu_value is None else nodes.gpu_value().best_slot(part, row, slots)
