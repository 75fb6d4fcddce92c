"""The `cost` scorer prefers cheap nodes, by the price in a label of the node."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Floats, NodeTable, Rows
from controller.core.model.request import PerNodeRequest

_PRICE = re.compile(r"\d{1,9}(\.\d{1,9})?")


@dataclass(frozen=True, slots=True)
class CostScorer:
    """The `cost` scorer prefers nodes with a low price. The price of a node is the value of its label with
    the name `label` (an option).

    A node without this label has the price `unknown`. A node with the price `unit` gets the score 0.5.
    """

    name: ClassVar[str] = "cost"

    label: str = "cost"
    unit: float = 1.0
    unknown: float = 1.0

    def concerns(self, part: PerNodeRequest, nodes: NodeTable) -> bool:
        return any(self.label in labels for labels in nodes.labels)

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return 1 for a node with price 0. The score falls as the price rises."""
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        prices = np.array([self._price(nodes.labels[row]) for row in chosen], dtype=np.float64)
        score: Floats = 1.0 / (1.0 + prices / max(self.unit, 1e-9))
        return score

    def _price(self, labels: dict[str, str]) -> float:
        text = labels.get(self.label, "")
        return float(text) if _PRICE.fullmatch(text) else max(self.unknown, 0.0)
