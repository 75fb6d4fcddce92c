"""The `data` scorer prefers nodes with the data sets that a job reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Floats, NodeTable, Rows
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class DataScorer:
    """A node has the data set `imagenet` if it has the label `data/imagenet`, with any value."""

    name: ClassVar[str] = "data"

    prefix: str = "data/"

    def concerns(self, part: PerNodeRequest, nodes: NodeTable) -> bool:
        """False if all nodes would get the same score."""
        return bool(part.datasets)

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """The part of the job's data sets that the node has."""
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        wanted = [self.prefix + name for name in part.datasets]
        found = [sum(key in nodes.labels[row] for key in wanted) for row in chosen]
        return np.array(found, dtype=np.float64) / max(1, len(wanted))
