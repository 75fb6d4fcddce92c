"""A plugin in a plain file: jobs go where power is cheap, unless they are urgent.

Name the file in scheduler.toml and give the scorer a weight:

    [plugins]
    files = ["cheap_power.py"]

    [scheduler.scorers]
    thrift = 100
    cheap_power = { weight = 40, label = "tariff", cheap = ["night", "solar"] }

A plugin is a frozen dataclass. Its fields are its options, `name` is its name in scheduler.toml, and its
methods determine its kind: a plugin with the method `score` is a scorer. A plugin must be deterministic and
must not change anything. If a plugin raises an exception, `corral events` names the plugin, and it is not
called again in this cycle. After three cycles with an exception, the plugin is disabled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Floats, NodeTable, Rows
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class CheapPower:
    """Returns the score 1 for nodes with one of the cheap tariffs, and 0 for all other nodes."""

    name: ClassVar[str] = "cheap_power"

    label: str = "tariff"
    cheap: tuple[str, ...] = ("night",)

    def concerns(self, part: PerNodeRequest, nodes: NodeTable) -> bool:
        """Return False if no node has the label, because all nodes then have the same score."""
        return any(self.label in labels for labels in nodes.labels)

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return 1 or 0 for each row (node)."""
        every = np.array([labels.get(self.label) in self.cheap for labels in nodes.labels], dtype=np.float64)
        return every[rows]
