"""The `fit` scorer prefers the node that is fullest after the placement, which keeps whole nodes free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Floats, NodeTable, Rows
from controller.core.model.request import PerNodeRequest
from wire.names import WHOLE_GPU


@dataclass(frozen=True, slots=True)
class FitScorer:
    """Best fit. `gpu` is the weight of the GPUs in the score; the CPU has the rest up to 1."""

    name: ClassVar[str] = "fit"

    gpu: float = 0.7

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """1 for a node with nothing left free, 0 for one with everything left free."""
        total = nodes.gpu_count[rows] * WHOLE_GPU
        free = np.maximum(nodes.gpu_free[rows], 0).sum(axis=1) - part.gpus * WHOLE_GPU - part.share
        gpu_left = free / np.maximum(total, 1)
        cpu_left = (nodes.cpu_free[rows] - part.cpu_milli) / np.maximum(nodes.cpu_total[rows], 1)
        score: Floats = 1.0 - np.clip(self.gpu * gpu_left + (1.0 - self.gpu) * cpu_left, 0.0, 1.0)
        return score
