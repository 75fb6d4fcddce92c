"""The `affinity` scorer prefers nodes whose labels meet the preferences of the job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Floats, NodeTable, Rows
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class AffinityScorer:
    """Scores by the weights of the preferences that the node's labels meet."""

    name: ClassVar[str] = "affinity"

    def concerns(self, part: PerNodeRequest, nodes: NodeTable) -> bool:
        """False if all nodes would get the same score."""
        return bool(part.preferences)

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """1 for a node that meets all preferences, 0 for one that meets none."""
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        wanted, labels = part.preferences, nodes.labels
        total = sum(each.weight for each in wanted) or 1
        return np.array(
            [sum(each.weight for each in wanted if each.term.matches(labels[row])) / total for row in chosen],
            dtype=np.float64,
        )
