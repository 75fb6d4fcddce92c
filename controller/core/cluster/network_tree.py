"""The network tree of the cluster ([topology]). The network tree records the switches above each node, and
measures the distance between the nodes of a gang.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from controller.core.cluster.node_table import Floats

Path = tuple[str, ...]
"""The switches above a node, the widest first."""
ROOT = 0
"""The index of the root of the tree. The root is above all nodes, including nodes without a switch."""


@dataclass(frozen=True, slots=True)
class NetworkTopology:
    """The table [topology]: the switches above each node, either by node name or by the labels of nodes."""

    levels: tuple[str, ...] = ()
    """The labels that name the switches of a node, the widest level first, such as ("spine", "rack")."""
    paths: Mapping[str, Path] = field(default_factory=dict)
    """The switches above each node, by node name. Used if there are no `levels`."""
    weight: float = 100.0
    """How much the nearness of the chosen nodes counts in a placement, on the same scale as the weights of
    the scorers.
    """

    def path(self, labels: Mapping[str, str]) -> Path:
        """Return the names of the switches above the node with these labels, the widest level first; empty if
        none is known. The label `node` is the name of the node.

        If the node lacks the label of one level, the path ends above this level.
        """
        if not self.levels:
            return self.paths.get(labels.get("node", ""), ())
        found = []
        for level in self.levels:
            if level not in labels:
                break
            found.append(labels[level])
        return tuple(found)


@dataclass(slots=True)
class _Switch:
    name: str
    parent: int
    height: int = 0
    """The number of levels of switches below this switch."""
    children: list[int] = field(default_factory=list)


class NetworkTree:
    """The switches of the cluster as a tree, with the nodes (rows of the node table) below them. The tree
    chooses the nodes of gangs, and has the same methods as TopologyDomains, so that a placement can use
    either.

    Nearness. The height of a switch is the number of levels of switches below it. A rack switch has the
    height 0. The distance of two nodes is the height of the lowest switch above both. The root means "no
    common switch" and is one level above all switches. The nearness of a set of nodes is 1 - (height +
    unused) / height of the root. Here `height` is the height of the lowest switch above all of these nodes.
    `unused` is a fraction: of the nodes below this switch with enough free resources, the part that the set
    does not use. So nodes below a lower switch are always nearer than nodes below a higher one. Of two
    switches on one level, the switch with fewer free nodes is preferred, so that larger blocks of free nodes
    stay whole.

    Algorithm of `choose`
    1. Make candidates, which are sets of nodes. One is the set of nodes with the best scores. `_fill` makes
       the other candidates: one set for each switch with enough nodes below it, the root included.
    2. `_fill`: below a switch without further switches, take the nodes with the best scores. Otherwise go
       through the switches directly below. If some of these switches have enough nodes for the rest of the
       gang, fill the switch with the fewest free nodes. If none has enough, take all free nodes of the switch
       with the most free nodes, and repeat this for the rest of the gang.
    3. Take the candidate with the greatest sum of two numbers: the mean score of its nodes, and `weight`
       times its nearness. If several candidates have the same sum, take the candidate whose upper switches
       have the fewest free nodes, then the first by name.

    Invariant: `choose` returns nodes whenever `rows` has enough nodes. So nearness never makes a job wait.

    Cost: O(switches with room + nodes * levels * log nodes) for one gang. `choose` is not called for jobs on
    one node, or without [topology].

    Example: racks a and b are below spine switch x. Rack a has 5 free nodes, rack b has 4. A gang of 4 gets
    the nodes of rack b. The nearness of these nodes is 1 - (0 + 0) / 2 = 1; four nodes of rack a have 1 - (0
    + 1/5) / 2 = 0.9. A gang of 6 gets all 5 nodes of rack a and one of rack b, with the nearness 1 - (1 +
    3/9) / 2 = 0.33.
    """

    def __init__(self, topology: NetworkTopology, labels: Sequence[Mapping[str, str]]) -> None:
        self.topology = topology
        self.switches = [_Switch("", ROOT)]
        found: dict[Path, int] = {(): ROOT}
        above: list[list[int]] = []
        for each in labels:
            path = topology.path(each)
            chain = [ROOT]
            for depth in range(1, len(path) + 1):
                at = found.get(path[:depth])
                if at is None:
                    at = found[path[:depth]] = len(self.switches)
                    self.switches.append(_Switch(path[depth - 1], chain[-1]))
                    self.switches[chain[-1]].children.append(at)
                chain.append(at)
            above.append(chain)
        for switch in reversed(self.switches[1:]):
            upper = self.switches[switch.parent]
            upper.height = max(upper.height, switch.height + 1)
        self.switches[ROOT].height = max(1, self.switches[ROOT].height)
        self._above = above
        """For each row (node), the indices of the switches above it, the root first."""

    @property
    def depth(self) -> int:
        """The number of levels of switches. It is also the distance of two nodes without a common switch."""
        return self.switches[ROOT].height

    def common_switch(self, rows: Iterable[int]) -> int:
        """Return the index of the lowest switch above all these nodes; ROOT if there is none."""
        chains = [self._above[row] for row in rows]
        lowest = ROOT
        for level in zip(*chains, strict=False):
            if len(set(level)) > 1:
                break
            lowest = level[0]
        return lowest

    def distance(self, row: int, other: int) -> int:
        """Return the distance of two nodes: the height of the lowest switch above both. The distance is 0 if
        both nodes are below the same lowest switch, and `depth` if they have no common switch.
        """
        return 0 if row == other else self.switches[self.common_switch((row, other))].height

    def description(self, rows: Iterable[int]) -> str:
        """Return a phrase with the name of the lowest switch that is above all the nodes `rows`."""
        common = self.common_switch(rows)
        if common == ROOT:
            return "no common switch"
        return f"all below switch {self.switches[common].name}"

    def nearness(self, chosen: Sequence[int], rows: Iterable[int]) -> float:
        """Return how near the nodes `chosen` are to each other, from 0 to 1. `rows` are all nodes that can
        hold the request. The class docstring has the formula.
        """
        common = self.common_switch(chosen)
        return self._nearness(common, len(chosen), sum(common in self._above[row] for row in rows))

    def points(self, chosen: Sequence[int], rows: Iterable[int]) -> float:
        """Return the nearness of the nodes `chosen`, times the weight in [topology]. The result is added to
        the mean score of these nodes.
        """
        return self.topology.weight * self.nearness(chosen, rows)

    def _nearness(self, switch: int, chosen: int, free: int) -> float:
        if switch == ROOT:
            return 0.0
        return 1.0 - (self.switches[switch].height + 1.0 - chosen / free) / self.depth

    def choose(self, rows: NDArray[np.intp], scores: Floats | None, nodes: int) -> list[int]:
        """Choose `nodes` nodes from `rows` that are near each other and have good scores. Return their row
        numbers in ascending order. Return an empty result if `rows` has fewer nodes.
        """
        if not 0 < nodes <= len(rows):
            return []
        best: list[int] = (
            rows if scores is None else rows[np.argsort(-scores[rows], kind="stable")]
        ).tolist()
        below: dict[int, list[int]] = {}
        for row in best:
            for switch in self._above[row]:
                below.setdefault(switch, []).append(row)
        candidates = [(self.common_switch(best[:nodes]), best[:nodes])] if scores is not None else []
        candidates += [(at, self._fill(at, nodes, below)) for at in below if len(below[at]) >= nodes]

        def rank(candidate: tuple[int, list[int]]) -> tuple[float, tuple[int, ...], list[int]]:
            at, chosen = candidate
            value = self.topology.weight * self._nearness(at, nodes, len(below[at]))
            if scores is not None:
                value += float(scores[chosen].mean())
            upper = tuple(len(below[each]) for each in reversed(self._above[chosen[0]]) if each in below)
            return round(-value, 9), upper, sorted(chosen)

        return min(map(rank, candidates))[2]

    def _fill(self, switch: int, nodes: int, below: Mapping[int, Sequence[int]]) -> list[int]:
        """Return `nodes` nodes below a switch, spread over as few lower switches as possible. `below`
        contains the nodes with enough free resources for each switch, the best first.
        """
        parts = [each for each in self.switches[switch].children if each in below]
        chosen: list[int] = []
        while parts and len(chosen) < nodes:
            missing = nodes - len(chosen)
            enough = [each for each in parts if len(below[each]) >= missing]
            if enough:
                tightest = min(enough, key=lambda each: len(below[each]))
                return chosen + self._fill(tightest, missing, below)
            widest = max(parts, key=lambda each: len(below[each]))
            chosen += below[widest]
            parts.remove(widest)
        taken = set(chosen)
        return chosen + [row for row in below[switch] if row not in taken][: nodes - len(chosen)]

    def spare_rows(self, rows: Iterable[int], nodes: int) -> int:
        """Return how many nodes in `rows` are left after a gang of `nodes` nodes has got its nodes. The
        result is negative if `rows` has too few nodes.
        """
        return len(set(rows)) - nodes

    def usable_rows(self, rows: Iterable[int], nodes: int) -> set[int]:
        """Return `rows` if these are enough nodes for a gang of `nodes` nodes; otherwise an empty set. All
        nodes are usable, because nearness is only a preference.
        """
        known = set(rows)
        return known if len(known) >= nodes else set()

    def nearest_first(self, rows: Sequence[int], members: Sequence[int]) -> list[int]:
        """Return `rows` sorted by their distance to the nodes `members` of a gang, the nearest first. Equally
        near nodes keep their order.
        """
        return sorted(rows, key=lambda row: sum(self.distance(row, each) for each in members))
