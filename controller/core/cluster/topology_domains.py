"""Topology domains: the nodes with the same value of a label, such as a rack or a switch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.core.cluster.node_table import Floats
from wire.job.placement.gpu_requirements import Topology


@dataclass(frozen=True, slots=True)
class GroupChoice:
    """Groups of nodes (rows of the node table) for a gang. The gang needs `each` nodes in each of `count`
    groups. Each group has at least `each` nodes.
    """

    count: int
    each: int
    groups: tuple[tuple[int, ...], ...]


class TopologyDomains:
    """The domain of each node (row of the node table), for one topology. Nodes without the label are in no
    domain.

    A job's topology demands that its nodes are divided evenly over a number of domains (`Topology.split`).

    Example: a gang needs 4 nodes in one rack. Rack a has 5 free nodes, rack b has 3. `choose` returns the 4
    best nodes of rack a. `spare_rows` returns 1: rack a still has 4 nodes after the loss of one node, but not
    after the loss of two.
    """

    def __init__(self, topology: Topology, labels: Sequence[dict[str, str]]) -> None:
        self._topology = topology
        values = [each.get(topology.label) for each in labels]
        self.names = sorted({value for value in values if value is not None})
        codes = {name: code for code, name in enumerate(self.names)}
        self._code = [-1 if value is None else codes[value] for value in values]

    def choose(self, rows: NDArray[np.intp], scores: Floats | None, nodes: int) -> list[int]:
        """Choose the best `nodes` nodes in `rows` that together satisfy the topology. Return their row
        numbers in ascending order. Return an empty result if this is not possible.

        1. In each domain, take as many of the best nodes as the gang needs in one domain.
        2. Take the domains with the greatest sum of scores; without scores, the first by name.
        """
        split = self._topology.split(nodes)
        if split is None:
            return []
        domains, each = split
        best = rows if scores is None else rows[np.argsort(-scores[rows], kind="stable")]
        inside: dict[int, list[int]] = {}
        for row in best.tolist():
            if self._code[row] >= 0:
                inside.setdefault(self._code[row], []).append(row)
        full = [(code, found[:each]) for code, found in inside.items() if len(found) >= each]
        if len(full) < domains:
            return []
        if scores is not None:
            full.sort(key=lambda found: (-float(scores[found[1]].sum()), found[0]))
        else:
            full.sort()
        return sorted(row for _, found in full[:domains] for row in found)

    def spare_rows(self, rows: Iterable[int], nodes: int) -> int:
        """Return how many of the nodes `rows` can be lost, in the worst case, before a gang of `nodes` nodes
        no longer fits. The result is negative if the gang does not fit now.
        """
        split = self._topology.split(nodes)
        if split is None:
            return -1
        domains, each = split
        surplus = sorted(count - each + 1 for count in self._counts(rows).values() if count >= each)
        return sum(surplus[: len(surplus) - domains + 1]) - 1 if len(surplus) >= domains else -1

    def group_choices(self, rows: Iterable[int], nodes: int) -> list[GroupChoice]:
        """Return how a gang of `nodes` nodes can be placed on the nodes `rows`: the domains with enough
        nodes, and how many of these domains the gang needs. Return an empty list if the gang does not fit.
        """
        split = self._topology.split(nodes)
        if split is None:
            return []
        domains, each = split
        inside: dict[int, list[int]] = {}
        for row in rows:
            if self._code[row] >= 0:
                inside.setdefault(self._code[row], []).append(row)
        full = tuple(tuple(found) for _, found in sorted(inside.items()) if len(found) >= each)
        return [GroupChoice(domains, each, full)] if len(full) >= domains else []

    def usable_rows(self, rows: Iterable[int], nodes: int) -> set[int]:
        """Return those of `rows` whose domains have enough nodes for a gang of `nodes` nodes.

        The gang needs a certain number of nodes in one domain. A domain has enough if at least this many of
        its nodes are in `rows`. Return no rows if the nodes of the gang cannot be divided evenly.
        """
        known, split = set(rows), self._topology.split(nodes)
        if split is None:
            return set()
        full = {code for code, count in self._counts(known).items() if count >= split[1]}
        return {row for row in known if self._code[row] in full}

    def description(self, rows: Iterable[int]) -> str:
        """Return a phrase for users that names the domain with the most nodes in `rows`."""
        counts = self._counts(rows)
        label = self._topology.label
        if not counts:
            return f"no node with the label {label} can give that now"
        most = max(counts, key=lambda code: (counts[code], -code))
        return f"{label} {self.names[most]} has the most nodes that can give that now: {counts[most]}"

    def _counts(self, rows: Iterable[int]) -> dict[int, int]:
        counts: dict[int, int] = {}
        for row in rows:
            code = self._code[row]
            if code >= 0:
                counts[code] = counts.get(code, 0) + 1
        return counts
