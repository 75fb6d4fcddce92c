"""Prefers the node where a job takes least of what free GPUs are worth to those who ask for GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Columns, Floats, Rows
from controller.core.requests import Part
from wire.words import WHOLE_GPU


@dataclass(frozen=True, slots=True)
class Thrift:
    """Least worth lost; what the worth is and where it comes from stands in controller.core.worth."""

    name: ClassVar[str] = "thrift"

    def concerns(self, part: Part, nodes: Columns) -> bool:
        """False where all nodes are alike to it."""
        return nodes.worth is not None and bool(nodes.gpu_free.shape[1])

    def score(self, part: Part, nodes: Columns, rows: Rows) -> Floats:
        """A half for a node that loses nothing, less the more it loses."""
        chosen = np.arange(nodes.height)[rows] if isinstance(rows, slice) else rows
        if nodes.worth is None or not nodes.gpu_free.shape[1]:
            return np.full(len(chosen), 0.5)
        score: Floats = 1.0 / (1.0 + np.exp(-nodes.worth().kept(part, chosen) / WHOLE_GPU))
        return score
