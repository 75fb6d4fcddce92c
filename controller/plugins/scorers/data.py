"""Prefers the node that has the data sets a job reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Columns, Floats, Rows
from controller.core.requests import Part


@dataclass(frozen=True, slots=True)
class Data:
    """A node has the data set `imagenet` if it has the label `data/imagenet`, whatever it says."""

    name: ClassVar[str] = "data"

    prefix: str = "data/"

    def concerns(self, part: Part, nodes: Columns) -> bool:
        """False where all nodes are alike to it."""
        return bool(part.datasets)

    def score(self, part: Part, nodes: Columns, rows: Rows) -> Floats:
        """The part of its data sets that is there."""
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        wanted = [self.prefix + name for name in part.datasets]
        found = [sum(key in nodes.labels[row] for key in wanted) for row in chosen]
        return np.array(found, dtype=np.float64) / max(1, len(wanted))
