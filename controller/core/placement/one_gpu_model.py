"""Groups nodes by GPU model, for gangs whose GPUs must all be of one model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from controller.core.cluster.gpu_requirements import UNSUITABLE, gpu_needs_of
from controller.core.cluster.node_table import ABSENT, Floats, NodeTable
from controller.core.cluster.topology_domains import TopologyDomains
from controller.core.model.request import PerNodeRequest
from wire.text import counted


def model_by_row(part: PerNodeRequest, columns: NodeTable) -> list[str]:
    """By row the model of those GPUs of the node that suit the request.

    A node with suitable GPUs of several models has all their names, so it matches only nodes like itself.
    Example: with an A100 and an H100 in one host, `NVIDIA A100 and NVIDIA H100`.
    """
    needs, found = gpu_needs_of(part, columns), []
    suits = [needs.milli_of(code) < UNSUITABLE for code in range(len(columns.gpu_types))]
    for slots in columns.gpu_model.tolist():
        kinds = {kind for kind in slots if kind != ABSENT and suits[kind]}
        found.append(" and ".join(sorted({columns.gpu_types[kind].model for kind in kinds})))
    return found


class GpuModelGroups:
    """Has the methods of TopologyDomains, for groups of nodes with the same GPU model.

    1. The nodes are divided by model.
    2. For each model the best rows are chosen, in domains as the topology wants if there is one.
    3. The model with the best scores wins; among equals the first by name, so that answers do not vary.

    Cost: O(nodes) for each call.

    Example: 3 free nodes with H100, 5 with A100, and a gang of 4 nodes: only the A100 nodes are enough.
    """

    def __init__(self, models: Sequence[str], inside: TopologyDomains | None = None) -> None:
        self._models = models
        self._inside = inside
        self.names = sorted({model for model in models if model})

    def same_model(self, row: int, other: int) -> bool:
        """Have these two nodes the same model?"""
        return self._models[row] == self._models[other]

    def choose(self, rows: NDArray[np.intp], scores: Floats | None, nodes: int) -> list[int]:
        """The best `nodes` of these rows with one model, in ascending order; empty if no model has enough."""
        best: tuple[float, list[int]] | None = None
        for _, these in self._by_model(rows.tolist()):
            found = self._choose(np.array(these, dtype=np.intp), scores, nodes)
            total = 0.0 if scores is None else float(scores[found].sum())
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
        """How many rows, whichever, may be lost before no model has enough; negative: none has enough now."""
        each = [self._spare(these, nodes) for _, these in self._by_model(rows)]
        return sum(spare + 1 for spare in each if spare >= 0) - 1

    def _spare(self, rows: list[int], nodes: int) -> int:
        return len(rows) - nodes if self._inside is None else self._inside.spare_rows(rows, nodes)

    def usable_rows(self, rows: Iterable[int], nodes: int) -> set[int]:
        """The rows of models that have enough."""
        return {
            row
            for _, these in self._by_model(rows)
            if self._spare(these, nodes) >= 0
            for row in (these if self._inside is None else self._inside.usable_rows(these, nodes))
        }

    def description(self, rows: Iterable[int]) -> str:
        """How many of these nodes each model has, as part of a sentence."""
        counts = {model: len(these) for model, these in self._by_model(rows)}
        counted_models = [f"{model} {counted(counts.get(model, 0), 'node')}" for model in self.names]
        return f"with room now: {', '.join(counted_models)}"

    def _by_model(self, rows: Iterable[int]) -> list[tuple[str, list[int]]]:
        """Rows in the order given, by model in the order of names."""
        found: dict[str, list[int]] = {}
        for row in rows:
            if self._models[row]:
                found.setdefault(self._models[row], []).append(row)
        return sorted(found.items())
