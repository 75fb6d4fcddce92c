"""The `selector` filter keeps nodes with all labels of the job's selector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Bools, NodeTable, Rows
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class SelectorFilter:
    """The label `node` is the name of the node."""

    name: ClassVar[str] = "selector"
    static: ClassVar[bool] = True

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        """True where every label matches."""
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        wanted = part.selector
        labels = nodes.labels
        return np.fromiter(
            (all(labels[row].get(key) == value for key, value in wanted) for row in chosen),
            dtype=np.bool_,
            count=len(chosen),
        )

    def concerns(self, part: PerNodeRequest) -> bool:
        """Does the request ask for anything that this filter checks?"""
        return bool(part.selector)

    def explain(self, part: PerNodeRequest) -> str:
        """The reason shown for a node that this filter rejected."""
        return "no label " + ", ".join(f"{key}={value}" for key, value in part.selector)
