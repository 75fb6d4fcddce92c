"""The `round-robin` scorer prefers the node whose last placement is the oldest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Floats, NodeTable, Rows
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class RoundRobinScorer:
    """Scores by the number of the node's last placement, counted since the controller started."""

    name: ClassVar[str] = "round-robin"

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """1 for a node without a placement so far; the less, the later its last placement."""
        turn = nodes.last_placement[rows] if len(nodes.last_placement) else np.zeros(nodes.height)[rows]
        score: Floats = 1.0 / (1.0 + turn.astype(np.float64))
        return score
