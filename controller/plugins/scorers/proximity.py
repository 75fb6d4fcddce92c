"""Prefers the node with most neighbours that have room too: members of a job come to lie together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Columns, Floats, Rows
from controller.core.needs import needs_of
from controller.core.requests import Part


@dataclass(frozen=True, slots=True)
class Proximity:
    """Network proximity: neighbours are nodes with the same value of `label`, such as rack or switch."""

    name: ClassVar[str] = "proximity"
    wide: ClassVar[bool] = True

    label: str = "rack"

    def concerns(self, part: Part, nodes: Columns) -> bool:
        """False where all nodes are alike to it."""
        return any(self.label in labels for labels in nodes.labels)

    def score(self, part: Part, nodes: Columns, rows: Rows) -> Floats:
        """The part of the cluster that lies with the node and has room; 0 for a node without the label."""
        room = nodes.open & (nodes.cpu_free >= part.cpu_milli) & (nodes.memory_free >= part.memory_mib)
        if part.wants_gpus:
            room &= needs_of(part, nodes).keep(nodes, slice(None))
        values = [labels.get(self.label) for labels in nodes.labels]
        codes = {value: code for code, value in enumerate(dict.fromkeys(values))}
        domain = np.array([codes[value] for value in values], dtype=np.intp)
        near = np.bincount(domain, weights=room, minlength=len(codes) or 1) / max(1, nodes.height)
        if None in codes:
            near[codes[None]] = 0.0
        score: Floats = near[domain][rows].astype(np.float64)
        return score
