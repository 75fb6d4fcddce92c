"""Prefers the node without a PreferNoSchedule taint that the job does not tolerate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Columns, Floats, Rows
from controller.core.requests import Part
from wire.affinity import Effect, unborne


@dataclass(frozen=True, slots=True)
class Taints:
    """The soft side of the filter of that name."""

    name: ClassVar[str] = "taints"

    def concerns(self, part: Part, nodes: Columns) -> bool:
        """False where all nodes are alike to it."""
        return any(nodes.taints)

    def score(self, part: Part, nodes: Columns, rows: Rows) -> Floats:
        """1 for a node that has nothing against the job, 0 for another."""
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        taints, borne = nodes.taints, part.tolerations
        return np.array(
            [unborne(taints[row], borne, Effect.PREFER_NO_SCHEDULE) is None for row in chosen],
            dtype=np.float64,
        )
