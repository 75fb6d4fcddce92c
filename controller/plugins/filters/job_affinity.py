"""The `company` filter keeps nodes that meet the required job affinity terms, such as "not on a node with
another job of mine".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Bools, NodeTable, Rows
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class JobAffinityFilter:
    """Keeps a node if it meets the required job affinity terms of the waiting job, and if no running job has
    an anti-affinity term that keeps the waiting job off the node.
    """

    name: ClassVar[str] = "company"

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        if nodes.job_affinity is not None:
            return nodes.job_affinity().nodes_allowed(part, nodes)[rows]
        # This node table has no running jobs: it is used to check whether the job can ever run. Keep all
        # nodes on which the affinity terms can be met once other jobs have started.
        mask = np.ones(nodes.height, dtype=np.bool_)
        for term in part.company:
            if not term.prefer and term.domains is not None:
                mask &= nodes.domain(term.topology) >= 0
        return mask[rows]

    def concerns(self, part: PerNodeRequest) -> bool:
        return bool(part.labels or part.company)

    def explain(self, part: PerNodeRequest) -> str:
        wanted = " and ".join(f"'{term}'" for term in part.company if not term.prefer)
        refused = "the job affinity of a job there excludes it" if part.labels else ""
        return (
            "; or ".join(text for text in (f"not {wanted}" if wanted else "", refused) if text)
            or "job affinity"
        )
