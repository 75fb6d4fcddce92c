"""Nodes whose labels meet every condition a job makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Bools, Columns, Rows
from controller.core.requests import Part


@dataclass(frozen=True, slots=True)
class Affinity:
    """Keeps nodes that match all terms: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    name: ClassVar[str] = "affinity"
    static: ClassVar[bool] = True

    def keep(self, part: Part, nodes: Columns, rows: Rows) -> Bools:
        """True where every term matches."""
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        terms, labels = part.affinity, nodes.labels
        return np.array([all(term.matches(labels[row]) for term in terms) for row in chosen], dtype=np.bool_)

    def concerns(self, part: Part) -> bool:
        """Whether the part asks for any of this."""
        return bool(part.affinity)

    def explain(self, part: Part) -> str:
        """What is wrong with a lost node."""
        return "does not meet " + " and ".join(f"'{term}'" for term in part.affinity)
