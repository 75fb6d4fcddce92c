"""Nodes with the labels asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Bools, Columns, Rows
from controller.core.requests import Part


@dataclass(frozen=True, slots=True)
class Selector:
    """Keeps nodes whose labels equal every pair of the selector; `node` is the node's own name."""

    name: ClassVar[str] = "selector"
    static: ClassVar[bool] = True

    def keep(self, part: Part, nodes: Columns, rows: Rows) -> Bools:
        """True where every label matches."""
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        wanted = part.selector
        labels = nodes.labels
        return np.fromiter(
            (all(labels[row].get(key) == value for key, value in wanted) for row in chosen),
            dtype=np.bool_,
            count=len(chosen),
        )

    def concerns(self, part: Part) -> bool:
        """Whether the part asks for any of this."""
        return bool(part.selector)

    def explain(self, part: Part) -> str:
        """What is wrong with a lost node."""
        return "no label " + ", ".join(f"{key}={value}" for key, value in part.selector)
