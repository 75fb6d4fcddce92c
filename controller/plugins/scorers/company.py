"""Prefers the node with the company of other jobs that a job would rather have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Columns, Floats, Rows
from controller.core.requests import Part


@dataclass(frozen=True, slots=True)
class Company:
    """By how many of the job's preferred terms about other jobs hold."""

    name: ClassVar[str] = "company"

    def concerns(self, part: Part, nodes: Columns) -> bool:
        """False where all nodes are alike to it."""
        return nodes.company is not None and any(term.prefer for term in part.company)

    def score(self, part: Part, nodes: Columns, rows: Rows) -> Floats:
        """1 where all hold, 0 where none does."""
        score: Floats = np.zeros(nodes.height)
        wanted = [term for term in part.company if term.prefer]
        if nodes.company is not None:
            for term in wanted:
                score += nodes.company().pleases(part, term, nodes)
        return score[rows] / max(1, len(wanted))
