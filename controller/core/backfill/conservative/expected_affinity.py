"""Affinity terms of jobs with a backfill reservation: the nodes that these terms bar for other jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from controller.core.cluster.node_table import Bools
from controller.core.cluster.nodes import Nodes
from controller.core.model.request import PerNodeRequest


class ExpectedAffinity:
    """The nodes that are reserved for jobs with labels or affinity terms.

    Conservative backfill makes no reservation that would break an affinity term, neither a term of the job
    itself nor a term of another job with a reservation.

    Example: job 7 has the label app=x and a reservation on gpu01. Job 8 must not run on a node with a job of
    label app=x, so job 8 gets no reservation on gpu01.
    """

    def __init__(self) -> None:
        self._labelled: dict[PerNodeRequest, Counter[int]] = {}
        self._with_terms: dict[PerNodeRequest, Counter[int]] = {}

    def copy(self) -> ExpectedAffinity:
        other = ExpectedAffinity()
        other._labelled = {part: Counter(rows) for part, rows in self._labelled.items()}
        other._with_terms = {part: Counter(rows) for part, rows in self._with_terms.items()}
        return other

    def add(self, part: PerNodeRequest, rows: Iterable[int], sign: int) -> None:
        """Add (`sign` 1) or remove (`sign` -1) the reservation of these nodes for a job with the request
        `part`.
        """
        if not part.social:
            return
        by_part = self._with_terms if _has_required_terms(part) else self._labelled
        counts = by_part.setdefault(part, Counter())
        for row in rows:
            counts[row] += sign
            if not counts[row]:
                del counts[row]
        if not counts:
            del by_part[part]

    def suited(self, part: PerNodeRequest, nodes: Nodes) -> Bools | None:
        """Return which nodes (True by row number) the affinity terms allow for a job with the request `part`.
        Return None if all nodes are allowed.

        On an allowed node, running jobs satisfy the terms of `part`. No affinity term is broken between
        `part` and a job with a reservation.
        """
        if not part.social:
            return None
        affinity, columns = nodes.job_affinity, nodes.columns
        labelled = self._labelled.items() if _has_required_terms(part) else ()
        mask = affinity.nodes_allowed(part, columns) if affinity.affects(part) else None
        for other, rows in [*self._with_terms.items(), *labelled]:
            broken = affinity.nodes_barred_by(part, other, list(rows), columns)
            if broken is not None:
                mask = ~broken if mask is None else mask & ~broken
        return mask


def _has_required_terms(part: PerNodeRequest) -> bool:
    return any(not term.prefer for term in part.company)
