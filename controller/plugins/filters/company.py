"""Nodes where the job has the company of other jobs that it demands, and bothers none that refuses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Bools, Columns, Rows
from controller.core.requests import Part


@dataclass(frozen=True, slots=True)
class Company:
    """Keeps nodes by the labelled jobs that run there, or elsewhere in the same domain."""

    name: ClassVar[str] = "company"

    def keep(self, part: Part, nodes: Columns, rows: Rows) -> Bools:
        """True where all terms hold, those of others about this job, too."""
        if nodes.company is not None:
            return nodes.company().keep(part, nodes)[rows]
        # Nobody is there: it must be possible, not so.
        mask = np.ones(nodes.height, dtype=np.bool_)
        for term in part.company:
            if not term.prefer and term.domains is not None:
                mask &= nodes.domain(term.topology) >= 0
        return mask[rows]

    def concerns(self, part: Part) -> bool:
        """Whether the part asks for any of this."""
        return bool(part.labels or part.company)

    def explain(self, part: Part) -> str:
        """What is wrong with a lost node."""
        wanted = " and ".join(f"'{term}'" for term in part.company if not term.prefer)
        refused = "a job there wants it apart" if part.labels else ""
        return (
            "; or ".join(text for text in (f"not {wanted}" if wanted else "", refused) if text)
            or "no company"
        )
