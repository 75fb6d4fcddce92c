"""A plugin in a plain file: jobs go where power is cheap, unless they are urgent.

Name the file in scheduler.toml and give the scorer a weight:

    [plugins]
    files = ["cheap_power.py"]

    [scheduler.scorers]
    thrift = 100
    cheap_power = { weight = 40, label = "tariff", cheap = ["night", "solar"] }

A plugin is a frozen dataclass. Its fields are its options, `name` is what scheduler.toml calls it, and its
methods say what kind it is: `score` makes a scorer. It must be deterministic and change nothing. One that
raises is named in `corral events`, passed over for a cycle, and given up after three.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Floats, NodeTable, Rows
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class CheapPower:
    """1 for nodes with one of the cheap tariffs, 0 for all others."""

    name: ClassVar[str] = "cheap_power"

    label: str = "tariff"
    cheap: tuple[str, ...] = ("night",)

    def concerns(self, part: PerNodeRequest, nodes: NodeTable) -> bool:  # noqa: ARG002 - every job pays for power
        """Without any such label all nodes are alike: then nobody need ask."""
        return any(self.label in labels for labels in nodes.labels)

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:  # noqa: ARG002
        """One number from 0 to 1 per row."""
        every = np.array([labels.get(self.label) in self.cheap for labels in nodes.labels], dtype=np.float64)
        return every[rows]
