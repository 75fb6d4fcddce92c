"""The `wiring` scorer prefers nodes whose free GPUs meet the job's NUMA and NVLink preferences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.gpu_requirements import gpu_needs_of
from controller.core.cluster.node_table import Floats, NodeTable, Rows
from controller.core.model.request import PerNodeRequest
from wire.job.gpu_requirements import PREFER


@dataclass(frozen=True, slots=True)
class GpuTopologyScorer:
    """Scores by how many of the preferences the node can meet together."""

    name: ClassVar[str] = "wiring"

    def concerns(self, part: PerNodeRequest, nodes: NodeTable) -> bool:
        """False if all nodes would get the same score."""
        return part.gpus > 1 and part.gpu is not None and part.gpu.prefers

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """1 where all preferences can be met together, 0 where none can."""
        fits, _ = gpu_needs_of(part, nodes).usable(nodes, rows)
        score: Floats = np.zeros(len(fits))
        wish = part.gpu
        if wish is None or part.gpus < 2:
            return score
        wanted = [
            pair for pair in ((wish.numa == PREFER, False), (False, wish.nvlink == PREFER)) if any(pair)
        ]
        for numa, linked in wanted:
            inside = (fits[:, None, :] & nodes.groups(bool(wish.numa) and numa, linked)[rows]).sum(axis=2)
            score += inside.max(axis=1, initial=0) >= part.gpus
        return score / max(1, len(wanted))
