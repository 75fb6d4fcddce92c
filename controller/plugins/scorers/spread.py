"""Prefers the node with the largest part free: jobs are far apart and disturb each other least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Columns, Floats, Rows
from controller.core.requests import Part
from wire.words import WHOLE_GPU


@dataclass(frozen=True, slots=True)
class Spread:
    """The opposite of best fit: by what is left of the GPUs, or of the CPU where no GPU is asked for."""

    name: ClassVar[str] = "spread"

    def score(self, part: Part, nodes: Columns, rows: Rows) -> Floats:
        """1 for a node left whole, 0 for one left with nothing."""
        asked = part.gpus * WHOLE_GPU + part.share
        if asked:
            left = np.maximum(nodes.gpu_free[rows], 0).sum(axis=1) - asked
            total = nodes.gpu_count[rows] * WHOLE_GPU
        else:
            left = nodes.cpu_free[rows] - part.cpu_milli
            total = nodes.cpu_total[rows]
        score: Floats = np.clip(left / np.maximum(total, 1), 0.0, 1.0)
        return score
