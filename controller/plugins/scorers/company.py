"""The `company` scorer prefers nodes that meet the job's preferences about other jobs (job affinity)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Floats, NodeTable, Rows
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class JobAffinityScorer:
    """Scores by how many of the preferred terms the node meets."""

    name: ClassVar[str] = "company"

    def concerns(self, part: PerNodeRequest, nodes: NodeTable) -> bool:
        """False if all nodes would get the same score."""
        return nodes.job_affinity is not None and any(term.prefer for term in part.company)

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """1 where all preferred terms hold, 0 where none does."""
        score: Floats = np.zeros(nodes.height)
        wanted = [term for term in part.company if term.prefer]
        if nodes.job_affinity is not None:
            for term in wanted:
                score += nodes.job_affinity().nodes_meeting(part, term, nodes)
        return score[rows] / max(1, len(wanted))
