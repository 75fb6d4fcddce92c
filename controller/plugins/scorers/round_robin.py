"""The `round-robin` scorer prefers the node that has had no placement for the longest time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Floats, NodeTable, Rows
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class RoundRobinScorer:
    """The `round-robin` scorer prefers nodes without a recent placement.

    Placements are numbered 1, 2, 3 … from the start of the controller. A node whose last placement has the
    number n gets the score 1 / (1 + n).
    """

    name: ClassVar[str] = "round-robin"

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return 1 for a node without a placement since the start of the controller. The later the node's
        last placement was, the lower is its score.
        """
        turn = nodes.last_placement[rows] if len(nodes.last_placement) else np.zeros(nodes.height)[rows]
        score: Floats = 1.0 / (1.0 + turn.astype(np.float64))
        return score
