"""The `load` scorer prefers the node with the most free CPU and memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Floats, NodeTable, Rows
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class LoadScorer:
    """Scores by the scarcer of CPU and memory after the placement."""

    name: ClassVar[str] = "load"

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """1 for a node with everything left free, 0 for one with no CPU or no memory left free."""
        cpu = (nodes.cpu_free[rows] - part.cpu_milli) / np.maximum(nodes.cpu_total[rows], 1)
        memory = (nodes.memory_free[rows] - part.memory_mib) / np.maximum(nodes.memory_total[rows], 1)
        score: Floats = np.clip(np.minimum(cpu, memory), 0.0, 1.0)
        return score
