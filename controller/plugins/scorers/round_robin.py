"""Prefers the node that has gone longest without being given anything: all in turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Columns, Floats, Rows
from controller.core.requests import Part


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """By the number of the last placement there, counted since the controller started."""

    name: ClassVar[str] = "round-robin"

    def score(self, part: Part, nodes: Columns, rows: Rows) -> Floats:
        """1 for a node that never got anything, less the later it did."""
        turn = nodes.turn[rows] if len(nodes.turn) else np.zeros(nodes.height)[rows]
        score: Floats = 1.0 / (1.0 + turn.astype(np.float64))
        return score
