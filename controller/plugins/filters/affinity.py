"""The `affinity` filter keeps nodes whose labels match all required terms of the job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Bools, NodeTable, Rows
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class AffinityFilter:
    """The operators of terms are In, NotIn, Exists, DoesNotExist, Gt and Lt."""

    name: ClassVar[str] = "affinity"
    static: ClassVar[bool] = True

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        """True where every term matches."""
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        terms, labels = part.affinity, nodes.labels
        return np.array([all(term.matches(labels[row]) for term in terms) for row in chosen], dtype=np.bool_)

    def concerns(self, part: PerNodeRequest) -> bool:
        """Does the request ask for anything that this filter checks?"""
        return bool(part.affinity)

    def apart(self, part: PerNodeRequest) -> Iterator[PerNodeRequest]:
        """The request with one term at a time, so that each term's rejections can be counted."""
        return (replace(part, affinity=(term,)) for term in part.affinity)

    def explain(self, part: PerNodeRequest) -> str:
        """The reason shown for a node that this filter rejected."""
        return "does not meet " + " and ".join(f"'{term}'" for term in part.affinity)
