"""Nodes without a taint that the job does not tolerate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Bools, Columns, Rows
from controller.core.requests import Part
from wire.affinity import Effect, unborne

_HARD = (Effect.NO_SCHEDULE, Effect.NO_EXECUTE)


@dataclass(frozen=True, slots=True)
class Taints:
    """Keeps nodes whose NoSchedule and NoExecute taints are all tolerated."""

    name: ClassVar[str] = "taints"
    static: ClassVar[bool] = True

    def keep(self, part: Part, nodes: Columns, rows: Rows) -> Bools:
        """True where nothing keeps the job away."""
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        taints, borne = nodes.taints, part.tolerations
        return np.array(
            [not taints[row] or unborne(taints[row], borne, *_HARD) is None for row in chosen], dtype=np.bool_
        )

    def concerns(self, part: Part) -> bool:
        """Whether the part asks for any of this."""
        return True

    def explain(self, part: Part) -> str:
        """What is wrong with a lost node."""
        borne = ", ".join(str(each) for each in part.tolerations)
        return "tainted" + (f", and {borne} tolerates another taint" if borne else ", and it tolerates none")
