"""The `spread` scorer prefers the node with the largest part free, so that jobs disturb each other least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Floats, NodeTable, Rows
from controller.core.model.request import PerNodeRequest
from wire.names import WHOLE_GPU


@dataclass(frozen=True, slots=True)
class SpreadScorer:
    """Scores by what is left free of the GPUs, or of the CPU for jobs without GPUs."""

    name: ClassVar[str] = "spread"

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """1 for a node with everything left free, 0 for one with nothing left free."""
        asked = part.gpus * WHOLE_GPU + part.share
        if asked:
            left = np.maximum(nodes.gpu_free[rows], 0).sum(axis=1) - asked
            total = nodes.gpu_count[rows] * WHOLE_GPU
        else:
            left = nodes.cpu_free[rows] - part.cpu_milli
            total = nodes.cpu_total[rows]
        score: Floats = np.clip(left / np.maximum(total, 1), 0.0, 1.0)
        return score
