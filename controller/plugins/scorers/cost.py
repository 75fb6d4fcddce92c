"""Prefers the cheaper node, by a label that says what it costs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Columns, Floats, Rows
from controller.core.requests import Part

_PRICE = re.compile(r"\d{1,9}(\.\d{1,9})?")


@dataclass(frozen=True, slots=True)
class Cost:
    """By the number in `label`. A node that names none costs `unknown`; what costs `unit` scores a half."""

    name: ClassVar[str] = "cost"

    label: str = "cost"
    unit: float = 1.0
    unknown: float = 1.0

    def concerns(self, part: Part, nodes: Columns) -> bool:
        """False where all nodes are alike to it."""
        return any(self.label in labels for labels in nodes.labels)

    def score(self, part: Part, nodes: Columns, rows: Rows) -> Floats:
        """1 for a node that costs nothing, less the more it costs."""
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        prices = np.array([self._price(nodes.labels[row]) for row in chosen], dtype=np.float64)
        score: Floats = 1.0 / (1.0 + prices / max(self.unit, 1e-9))
        return score

    def _price(self, labels: dict[str, str]) -> float:
        text = labels.get(self.label, "")
        return float(text) if _PRICE.fullmatch(text) else max(self.unknown, 0.0)
