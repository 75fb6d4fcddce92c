"""Prefers the node that meets most of what the job would rather have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Columns, Floats, Rows
from controller.core.requests import Part


@dataclass(frozen=True, slots=True)
class Affinity:
    """By the weights of the job's preferences that the node's labels meet."""

    name: ClassVar[str] = "affinity"

    def concerns(self, part: Part, nodes: Columns) -> bool:
        """False where all nodes are alike to it."""
        return bool(part.preferences)

    def score(self, part: Part, nodes: Columns, rows: Rows) -> Floats:
        """1 for a node that meets them all, 0 for one that meets none."""
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        wanted, labels = part.preferences, nodes.labels
        total = sum(each.weight for each in wanted) or 1
        return np.array(
            [sum(each.weight for each in wanted if each.term.matches(labels[row])) / total for row in chosen],
            dtype=np.float64,
        )
