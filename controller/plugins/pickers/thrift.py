"""The `thrift` picker takes a share from the GPU where that costs the least value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from controller.core.cluster.node_table import NodeTable
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class GpuValuePicker:
    """Uses the same model as the `thrift` scorer: core/cluster/gpu_value.py."""

    name: ClassVar[str] = "thrift"

    def pick(self, part: PerNodeRequest, nodes: NodeTable, row: int, slots: Sequence[int]) -> int:
        """The slot where the share costs least; the first among equals."""
        return slots[0] if nodes.gpu_value is None else nodes.gpu_value().best_slot(part, row, slots)
