"""The `company` filter keeps nodes that meet the required job affinity, of the job and of running jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Bools, NodeTable, Rows
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class JobAffinityFilter:
    """Keeps nodes where the job's terms about running jobs hold, and running jobs' terms about the job."""

    name: ClassVar[str] = "company"

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        """True for each node where all these terms hold."""
        if nodes.job_affinity is not None:
            return nodes.job_affinity().nodes_allowed(part, nodes)[rows]
        # Without `job_affinity` the table has the idle nodes: keep those where the terms can hold at all.
        mask = np.ones(nodes.height, dtype=np.bool_)
        for term in part.company:
            if not term.prefer and term.domains is not None:
                mask &= nodes.domain(term.topology) >= 0
        return mask[rows]

    def concerns(self, part: PerNodeRequest) -> bool:
        """Does the request ask for anything that this filter checks?"""
        return bool(part.labels or part.company)

    def explain(self, part: PerNodeRequest) -> str:
        """The reason shown for a node that this filter rejected."""
        wanted = " and ".join(f"'{term}'" for term in part.company if not term.prefer)
        refused = "the job affinity of a job there excludes it" if part.labels else ""
        return (
            "; or ".join(text for text in (f"not {wanted}" if wanted else "", refused) if text)
            or "job affinity"
        )
