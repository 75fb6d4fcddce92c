"""Filters by the labels and taints of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Bools, NodeTable, Rows
from controller.core.model.request import PerNodeRequest
from wire.job.placement.affinity import Effect, untolerated_taint


@dataclass(frozen=True, slots=True)
class SelectorFilter:
    """The `selector` filter keeps nodes with all labels of the job's selector.

    Every node has the label `node` with its own name as the value.
    """

    name: ClassVar[str] = "selector"
    static: ClassVar[bool] = True

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        wanted = part.selector
        labels = nodes.labels
        return np.fromiter(
            (all(labels[row].get(key) == value for key, value in wanted) for row in chosen),
            dtype=np.bool_,
            count=len(chosen),
        )

    def concerns(self, part: PerNodeRequest) -> bool:
        return bool(part.selector)

    def explain(self, part: PerNodeRequest) -> str:
        return "no label " + ", ".join(f"{key}={value}" for key, value in part.selector)


@dataclass(frozen=True, slots=True)
class AffinityFilter:
    """The `affinity` filter keeps nodes whose labels match all required node affinity terms of the job.

    The operators of terms are In, NotIn, Exists, DoesNotExist, Gt and Lt, as in Kubernetes.
    """

    name: ClassVar[str] = "affinity"
    static: ClassVar[bool] = True

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        terms, labels = part.affinity, nodes.labels
        return np.array([all(term.matches(labels[row]) for term in terms) for row in chosen], dtype=np.bool_)

    def concerns(self, part: PerNodeRequest) -> bool:
        return bool(part.affinity)

    def apart(self, part: PerNodeRequest) -> Iterator[PerNodeRequest]:
        """Yield a copy of the request for each required node affinity term. The copy has this term only.

        With these copies, `corral explain` counts how many nodes each term rejects.
        """
        return (replace(part, affinity=(term,)) for term in part.affinity)

    def explain(self, part: PerNodeRequest) -> str:
        return "does not meet " + " and ".join(f"'{term}'" for term in part.affinity)


_HARD = (Effect.NO_SCHEDULE, Effect.NO_EXECUTE)


@dataclass(frozen=True, slots=True)
class TaintFilter:
    """The `taints` filter keeps a node if the job tolerates all taints of the node.

    It checks only taints with the effects NoSchedule and NoExecute.
    """

    name: ClassVar[str] = "taints"
    static: ClassVar[bool] = True

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        taints, borne = nodes.taints, part.tolerations
        return np.array(
            [not taints[row] or untolerated_taint(taints[row], borne, *_HARD) is None for row in chosen],
            dtype=np.bool_,
        )

    def concerns(self, part: PerNodeRequest) -> bool:
        return True

    def explain(self, part: PerNodeRequest) -> str:
        borne = ", ".join(str(each) for each in part.tolerations)
        return "tainted" + (f", and {borne} tolerates another taint" if borne else ", and it tolerates none")
