"""The `pack` scorer prefers the node that is most in use already, whatever the size of the job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Floats, NodeTable, Rows
from controller.core.model.request import PerNodeRequest
from wire.names import WHOLE_GPU


@dataclass(frozen=True, slots=True)
class PackScorer:
    """Scores by the used part of the GPUs, or of the CPU for jobs without GPUs: the opposite of `spread`."""

    name: ClassVar[str] = "pack"

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """1 for a full node, 0 for an idle one."""
        if part.wants_gpus:
            total = nodes.gpu_count[rows] * WHOLE_GPU
            left = np.maximum(nodes.gpu_free[rows], 0).sum(axis=1)
        else:
            total, left = nodes.cpu_total[rows], nodes.cpu_free[rows]
        score: Floats = 1.0 - np.clip(left / np.maximum(total, 1), 0.0, 1.0)
        return score
