"""Prefers the node with the most CPU and memory to spare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Columns, Floats, Rows
from controller.core.requests import Part


@dataclass(frozen=True, slots=True)
class Load:
    """Least loaded, by the scarcer of CPU and memory."""

    name: ClassVar[str] = "load"

    def score(self, part: Part, nodes: Columns, rows: Rows) -> Floats:
        """1 for an idle node, 0 for one that would be full."""
        cpu = (nodes.cpu_free[rows] - part.cpu_milli) / np.maximum(nodes.cpu_total[rows], 1)
        memory = (nodes.memory_free[rows] - part.memory_mib) / np.maximum(nodes.memory_total[rows], 1)
        score: Floats = np.clip(np.minimum(cpu, memory), 0.0, 1.0)
        return score
