"""Prefers the node that is fullest afterwards, GPUs first: big jobs keep whole nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Columns, Floats, Rows
from controller.core.requests import Part
from wire.words import WHOLE_GPU


@dataclass(frozen=True, slots=True)
class Fit:
    """Best fit. `gpu` is how much of the score the GPUs decide, CPU has the rest."""

    name: ClassVar[str] = "fit"

    gpu: float = 0.7

    def score(self, part: Part, nodes: Columns, rows: Rows) -> Floats:
        """1 for a node left with nothing, 0 for one left whole."""
        total = nodes.gpu_count[rows] * WHOLE_GPU
        free = np.maximum(nodes.gpu_free[rows], 0).sum(axis=1) - part.gpus * WHOLE_GPU - part.share
        gpu_left = free / np.maximum(total, 1)
        cpu_left = (nodes.cpu_free[rows] - part.cpu_milli) / np.maximum(nodes.cpu_total[rows], 1)
        score: Floats = 1.0 - np.clip(self.gpu * gpu_left + (1.0 - self.gpu) * cpu_left, 0.0, 1.0)
        return score
