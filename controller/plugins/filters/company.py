"""The `company` filter keeps nodes that meet the required job affinity (such as "not on a node with another
job of mine") of the waiting job and of the running jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Bools, NodeTable, Rows
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class JobAffinityFilter:
    """Keeps a node if two conditions hold: the node meets the required affinity terms of the waiting job, and
    no running job on the node has an anti-affinity term against the waiting job.
    """

    name: ClassVar[str] = "company"

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        if nodes.job_affinity is not None:
            return nodes.job_affinity().nodes_allowed(part, nodes)[rows]
        # A node table without running jobs is used to check whether the job can ever run. Keep all nodes on
        # which the affinity terms could be met once other jobs have started.
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
