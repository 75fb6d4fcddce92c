"""Prefers the node whose CPU, memory and GPUs are used most alike: none runs out before the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Columns, Floats, Ints, Rows
from controller.core.requests import Part
from wire.words import WHOLE_GPU


@dataclass(frozen=True, slots=True)
class Balanced:
    """By how far apart the used parts of what the node has will be."""

    name: ClassVar[str] = "balanced"

    def score(self, part: Part, nodes: Columns, rows: Rows) -> Floats:
        """1 where all are used alike, 0 where one is used up and another untouched."""
        cpu = _used(nodes.cpu_free[rows], part.cpu_milli, nodes.cpu_total[rows])
        memory = _used(nodes.memory_free[rows], part.memory_mib, nodes.memory_total[rows])
        free = np.maximum(nodes.gpu_free[rows], 0).sum(axis=1)
        total = nodes.gpu_count[rows] * WHOLE_GPU
        gpu = _used(free, part.gpus * WHOLE_GPU + part.share, total)
        most, least = np.maximum(cpu, memory), np.minimum(cpu, memory)
        spread = np.where(total, np.maximum(most, gpu) - np.minimum(least, gpu), most - least)
        score: Floats = 1.0 - np.clip(spread, 0.0, 1.0)
        return score


def _used(free: Ints, asked: int, total: Ints) -> Floats:
    used: Floats = 1.0 - (free - asked) / np.maximum(total, 1)
    return used
