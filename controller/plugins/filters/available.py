"""Nodes that are there and take work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.columns import Bools, Columns, Rows
from controller.core.requests import Part


@dataclass(frozen=True, slots=True)
class Available:
    """Keeps nodes that are up and not drained."""

    name: ClassVar[str] = "available"

    def keep(self, part: Part, nodes: Columns, rows: Rows) -> Bools:
        """True where the node takes work."""
        return nodes.open[rows]

    def concerns(self, part: Part) -> bool:
        """Whether the part asks for any of this."""
        return True

    def explain(self, part: Part) -> str:
        """What is wrong with a lost node."""
        return "away or drained"
