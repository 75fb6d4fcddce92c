"""The `balanced` scorer prefers nodes where CPU, memory and GPUs are used to similar degrees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Floats, Ints, NodeTable, Rows
from controller.core.model.request import PerNodeRequest
from wire.names import WHOLE_GPU


@dataclass(frozen=True, slots=True)
class BalancedScorer:
    """Scores by the difference between the most and the least used resource after the placement."""

    name: ClassVar[str] = "balanced"

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """1 where all are used to the same degree, 0 where one is used up and another is unused."""
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
