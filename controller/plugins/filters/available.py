"""The `available` filter keeps nodes that take new work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.cluster.node_table import Bools, NodeTable, Rows
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class AvailableFilter:
    """Keeps nodes that are up and not drained."""

    name: ClassVar[str] = "available"

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        """True for nodes that take new work."""
        return nodes.open[rows]

    def concerns(self, part: PerNodeRequest) -> bool:
        """Does the request ask for anything that this filter checks?"""
        return True

    def explain(self, part: PerNodeRequest) -> str:
        """The reason shown for a node that this filter rejected."""
        return "away or drained"
