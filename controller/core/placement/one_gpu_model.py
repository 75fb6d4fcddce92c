"""Groups nodes by GPU model. Jobs on several nodes need this if all their GPUs must be of one model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from controller.core.cluster.gpus.gpu_requirements import UNSUITABLE, gpu_needs_of
from controller.core.cluster.network_tree import NetworkTree
from controller.core.cluster.node_table import ABSENT, Floats, NodeTable
from controller.core.cluster.topology_domains import GroupChoice, TopologyDomains
from controller.core.model.request import PerNodeRequest
from wire.text import counted


def model_by_row(part: PerNodeRequest, columns: NodeTable) -> list[str]:
    """Return for each node, by row number, the model of its GPUs that suit the request. The text is empty if
    no GPU of the node suits the request.

    If GPUs of several models suit, the text has all their names, such as `NVIDIA A100 and NVIDIA H100`. The
    node is then grouped only with nodes that have the same models.
    """
    needs, found = gpu_needs_of(part, columns), []
    suits = [needs.milli_of(code) < UNSUITABLE for code in range(len(columns.gpu_types))]
    for slots in columns.gpu_model.tolist():
        kinds = {kind for kind in slots if kind != ABSENT and suits[kind]}
        found.append(" and ".join(sorted({columns.gpu_types[kind].model for kind in kinds})))
    return found


class GpuModelGroups:
    """Chooses nodes that all have the same GPU model. The class has the same methods as TopologyDomains, so
    that the placer can use either class.

    1. Divide the nodes by GPU model.
    2. For each model choose the nodes with the best scores. These nodes must be in one topology domain if the
       job requires this. For any other job, with [topology], nodes that are near each other are preferred.
    3. Take the model whose nodes have the highest total score, including the points for nearness. On a tie,
       take the first model by name.

    Cost: O(nodes) for each call.

    Example: 3 nodes with H100 and 5 with A100 are free. For a gang of 4 nodes only the A100 nodes are enough.
    """

    def __init__(self, models: Sequence[str], inside: TopologyDomains | NetworkTree | None = None) -> None:
        self._models = models
        self._inside = inside
        self.names = sorted({model for model in models if model})

    def same_model(self, row: int, other: int) -> bool:
        return self._models[row] == self._models[other]

    def choose(self, rows: NDArray[np.intp], scores: Floats | None, nodes: int) -> list[int]:
        """Choose the best `nodes` nodes of one GPU model from `rows`. Return their row numbers in ascending
        order. Return an empty result if no model has enough nodes.
        """
        best: tuple[float, list[int]] | None = None
        for _, these in self._by_model(rows.tolist()):
            found = self._choose(np.array(these, dtype=np.intp), scores, nodes)
            total = 0.0 if scores is None else float(scores[found].sum())
            if found and isinstance(self._inside, NetworkTree):
                total += nodes * self._inside.points(found, these)
            if found and (best is None or total > best[0]):
                best = total, found
        return [] if best is None else best[1]

    def _choose(self, rows: NDArray[np.intp], scores: Floats | None, nodes: int) -> list[int]:
        if self._inside is not None:
            return self._inside.choose(rows, scores, nodes)
        if len(rows) < nodes:
            return []
        best = rows if scores is None else rows[np.argsort(-scores[rows], kind="stable")]
        return sorted(best[:nodes].tolist())

    def spare_rows(self, rows: Iterable[int], nodes: int) -> int:
        """Return the greatest number k such that one GPU model still has `nodes` nodes, whichever k of the
        nodes `rows` are taken away. The result is negative if no model has enough nodes now.

        Example: with 5 H100 nodes, 3 A100 nodes and `nodes` = 4, the result is 1.
        """
        each = [self._spare(these, nodes) for _, these in self._by_model(rows)]
        return sum(spare + 1 for spare in each if spare >= 0) - 1

    def _spare(self, rows: list[int], nodes: int) -> int:
        return len(rows) - nodes if self._inside is None else self._inside.spare_rows(rows, nodes)

    def group_choices(self, rows: Iterable[int], nodes: int) -> list[GroupChoice]:
        """Return how a gang of `nodes` nodes can be placed on the nodes `rows`, with one choice for each GPU
        model that has enough nodes. If the job requires one topology domain, the groups of a choice are the
        domains of its model. For any other job, the only group has all nodes of the model.
        """
        found: list[GroupChoice] = []
        for _, these in self._by_model(rows):
            if isinstance(self._inside, TopologyDomains):
                found += self._inside.group_choices(these, nodes)
            elif len(these) >= nodes:
                found.append(GroupChoice(1, nodes, (tuple(these),)))
        return found

    def usable_rows(self, rows: Iterable[int], nodes: int) -> set[int]:
        """Return the rows in `rows` that belong to a large enough group: at least `nodes` of `rows` have this
        GPU model and, if the job requires one topology domain, are in this domain.
        """
        return {
            row
            for _, these in self._by_model(rows)
            if self._spare(these, nodes) >= 0
            for row in (these if self._inside is None else self._inside.usable_rows(these, nodes))
        }

    def description(self, rows: Iterable[int]) -> str:
        """Return a text for users: how many of the nodes in `rows` have each GPU model."""
        counts = {model: len(these) for model, these in self._by_model(rows)}
        counted_models = [f"{model} {counted(counts.get(model, 0), 'node')}" for model in self.names]
        return f"with room now: {', '.join(counted_models)}"

    def _by_model(self, rows: Iterable[int]) -> list[tuple[str, list[int]]]:
        """Return each GPU model with the row numbers of its nodes, sorted by the name of the model. The row
        numbers of one model are in the same order as in `rows`.
        """
        found: dict[str, list[int]] = {}
        for row in rows:
            if self._models[row]:
                found.setdefault(self._models[row], []).append(row)
        return sorted(found.items())
