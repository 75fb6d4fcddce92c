"""Prefers the node of which most is in use already, however small the job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Columns, Floats, Rows
from controller.core.requests import Part
from wire.words import WHOLE_GPU


@dataclass(frozen=True, slots=True)
class Pack:
    """The opposite of spread: by what is used of the GPUs, or of the CPU where no GPU is asked for."""

    name: ClassVar[str] = "pack"

    def score(self, part: Part, nodes: Columns, rows: Rows) -> Floats:
        """1 for a node that is full, 0 for an idle one."""
        if part.wants_gpus:
            total = nodes.gpu_count[rows] * WHOLE_GPU
            left = np.maximum(nodes.gpu_free[rows], 0).sum(axis=1)
        else:
            total, left = nodes.cpu_total[rows], nodes.cpu_free[rows]
        score: Floats = 1.0 - np.clip(left / np.maximum(total, 1), 0.0, 1.0)
        return score
