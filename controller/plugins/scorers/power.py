"""Prefers the node that works already: idle ones may go on sleeping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Columns, Floats, Rows
from controller.core.requests import Part


@dataclass(frozen=True, slots=True)
class Power:
    """By whether anything runs there."""

    name: ClassVar[str] = "power"

    def score(self, part: Part, nodes: Columns, rows: Rows) -> Floats:
        """1 for a node that is at work, 0 for an idle one."""
        idle = (nodes.cpu_free[rows] >= nodes.cpu_total[rows]) & (
            nodes.memory_free[rows] >= nodes.memory_total[rows]
        )
        return np.where(idle, 0.0, 1.0)
