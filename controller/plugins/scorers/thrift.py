"""The `thrift` scorer prefers the placement that leaves the free GPUs that are the most useful for later
jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Floats, NodeTable, Rows
from controller.core.model.request import PerNodeRequest
from wire.names import WHOLE_GPU


@dataclass(frozen=True, slots=True)
class GpuValueScorer:
    """The `thrift` scorer prefers nodes where the placement reduces the value of the free GPUs the least. The
    value says how useful free GPUs are for later jobs (see core/cluster/gpus/gpu_value.py).
    """

    name: ClassVar[str] = "thrift"

    def concerns(self, part: PerNodeRequest, nodes: NodeTable) -> bool:
        return nodes.gpu_value is not None and bool(nodes.gpu_free.shape[1])

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return 0.5 for a node whose free GPUs lose no value. The score falls as the lost value rises."""
        chosen = np.arange(nodes.height)[rows] if isinstance(rows, slice) else rows
        if nodes.gpu_value is None or not nodes.gpu_free.shape[1]:
            return np.full(len(chosen), 0.5)
        score: Floats = 1.0 / (1.0 + np.exp(-nodes.gpu_value().change(part, chosen) / WHOLE_GPU))
        return score
