"""The `taints` filter keeps nodes without a taint that the job does not tolerate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Bools, NodeTable, Rows
from controller.core.model.request import PerNodeRequest
from wire.job.affinity import Effect, untolerated_taint

_HARD = (Effect.NO_SCHEDULE, Effect.NO_EXECUTE)


@dataclass(frozen=True, slots=True)
class TaintFilter:
    """Checks taints with the effects NoSchedule and NoExecute."""

    name: ClassVar[str] = "taints"
    static: ClassVar[bool] = True

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        """True where the job tolerates all these taints."""
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        taints, borne = nodes.taints, part.tolerations
        return np.array(
            [not taints[row] or untolerated_taint(taints[row], borne, *_HARD) is None for row in chosen],
            dtype=np.bool_,
        )

    def concerns(self, part: PerNodeRequest) -> bool:
        """Does the request ask for anything that this filter checks?"""
        return True

    def explain(self, part: PerNodeRequest) -> str:
        """The reason shown for a node that this filter rejected."""
        borne = ", ".join(str(each) for each in part.tolerations)
        return "tainted" + (f", and {borne} tolerates another taint" if borne else ", and it tolerates none")
