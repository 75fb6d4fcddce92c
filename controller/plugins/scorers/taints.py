"""The `taints` scorer prefers nodes without a PreferNoSchedule taint that the job does not tolerate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Floats, NodeTable, Rows
from controller.core.model.request import PerNodeRequest
from wire.job.affinity import Effect, untolerated_taint


@dataclass(frozen=True, slots=True)
class TaintScorer:
    """The `taints` filter checks the taints with the other effects."""

    name: ClassVar[str] = "taints"

    def concerns(self, part: PerNodeRequest, nodes: NodeTable) -> bool:
        """False if all nodes would get the same score."""
        return any(nodes.taints)

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """1 for a node without such a taint, 0 for a node with one."""
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        taints, borne = nodes.taints, part.tolerations
        return np.array(
            [untolerated_taint(taints[row], borne, Effect.PREFER_NO_SCHEDULE) is None for row in chosen],
            dtype=np.float64,
        )
