"""The `power` scorer prefers nodes that are in use, so that idle nodes can stay in low-power states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Floats, NodeTable, Rows
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class PowerScorer:
    """Scores by whether any CPU or memory of the node is in use."""

    name: ClassVar[str] = "power"

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """1 for a node in use, 0 for an idle one."""
        idle = (nodes.cpu_free[rows] >= nodes.cpu_total[rows]) & (
            nodes.memory_free[rows] >= nodes.memory_total[rows]
        )
        return np.where(idle, 0.0, 1.0)
