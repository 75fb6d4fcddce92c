"""The `fragmentation` scorer prefers nodes where the placement leaves few free GPU resources that jobs with
whole GPUs cannot use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.gpus.gpu_requirements import gpu_needs_of
from controller.core.cluster.node_table import ABSENT, Floats, NodeTable, Rows
from controller.core.model.request import PerNodeRequest
from wire.names import WHOLE_GPU

_FULL = 2 * WHOLE_GPU


@dataclass(frozen=True, slots=True)
class FragmentationScorer:
    """The `fragmentation` scorer prefers nodes where the placement adds the least to the unusable free GPU
    resources: those that no job with whole GPUs can use.

    Two kinds are unusable: the free part of a partly used GPU, and a free GPU without enough free CPUs. A GPU
    needs as many free CPUs as the node's CPUs divided by its GPUs. This scorer does not depend on the
    requests of the users' jobs; the `thrift` scorer does.
    """

    name: ClassVar[str] = "fragmentation"

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return 0.5 for a node where the placement does not change the amount of unusable free GPU
        resources. The score is above 0.5 where the amount falls, and below 0.5 where it rises.
        """
        free = nodes.gpu_free[rows]
        cpu = nodes.cpu_free[rows]
        even = np.maximum(nodes.cpu_total[rows] / np.maximum(nodes.gpu_count[rows], 1), 1.0)
        whole = (free == WHOLE_GPU).sum(axis=1)
        begun = np.where((free > 0) & (free < WHOLE_GPU), free, 0).sum(axis=1)
        taken, left = np.full(len(free), part.gpus), np.zeros(len(free))
        if part.wants_gpus and not part.gpus and free.shape[1]:
            fits, needed = gpu_needs_of(part, nodes).usable(nodes, rows)
            least = np.where(fits & (free != ABSENT), free, _FULL)
            slot = least.argmin(axis=1)
            tightest = np.take_along_axis(least, slot[:, None], axis=1)[:, 0]
            share = np.broadcast_to(needed, free.shape)[np.arange(len(free)), slot]
            opens = tightest == WHOLE_GPU
            taken = opens.astype(np.int64)
            left = np.where(opens, WHOLE_GPU - share, -share).astype(np.float64)
        before = begun + WHOLE_GPU * np.maximum(0, whole - cpu / even)
        after = begun + left + WHOLE_GPU * np.maximum(0, whole - taken - (cpu - part.cpu_milli) / even)
        score: Floats = 1.0 / (1.0 + np.exp(np.clip((after - before) / WHOLE_GPU, -50.0, 50.0)))
        return score
