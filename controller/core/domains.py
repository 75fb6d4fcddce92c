"""Which nodes lie in one domain: all that have the same value of a label."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from controller.core.columns import Floats
from wire.gpuwish import Topology


class Domains:
    """The domain of every row; nodes without the label lie in none."""

    def __init__(self, topology: Topology, labels: Sequence[dict[str, str]]) -> None:
        self._topology = topology
        values = [each.get(topology.label) for each in labels]
        self.names = sorted({value for value in values if value is not None})
        codes = {name: code for code, name in enumerate(self.names)}
        self._code = [-1 if value is None else codes[value] for value in values]

    def choose(self, rows: NDArray[np.intp], scores: Floats | None, nodes: int) -> list[int]:
        """So many of these rows that lie as asked, by score or by name; none if there are none."""
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

    def spare(self, rows: Iterable[int], nodes: int) -> int:
        """How many rows may be lost, whichever, before too few lie as asked; negative: too few do now."""
        split = self._topology.split(nodes)
        if split is None:
            return -1
        domains, each = split
        surplus = sorted(count - each + 1 for count in self._counts(rows).values() if count >= each)
        return sum(surplus[: len(surplus) - domains + 1]) - 1 if len(surplus) >= domains else -1

    def relevant(self, rows: Iterable[int], nodes: int) -> set[int]:
        """Those that lie in a domain with as many as it would have to give."""
        known, split = set(rows), self._topology.split(nodes)
        each = split[1] if split is not None else 0
        full = {code for code, count in self._counts(known).items() if count >= each}
        return {row for row in known if self._code[row] in full}

    def told(self, rows: Iterable[int]) -> str:
        """How these rows lie, in words."""
        counts = self._counts(rows)
        label = self._topology.label
        if not counts:
            return f"no node with the label {label} can give that now"
        most = max(counts, key=lambda code: (counts[code], -code))
        return f"{label} {self.names[most]} has most that can give that now: {counts[most]}"

    def _counts(self, rows: Iterable[int]) -> dict[int, int]:
        counts: dict[int, int] = {}
        for row in rows:
            code = self._code[row]
            if code >= 0:
                counts[code] = counts.get(code, 0) + 1
        return counts
