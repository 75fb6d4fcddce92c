"""Prefers the node whose free GPUs hang together as the job would like: one NUMA node, NVLink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Columns, Floats, Rows
from controller.core.needs import needs_of
from controller.core.requests import Part
from wire.gpuwish import PREFER


@dataclass(frozen=True, slots=True)
class Wiring:
    """By how many of the job's preferences about NUMA and NVLink the node can meet at once."""

    name: ClassVar[str] = "wiring"

    def concerns(self, part: Part, nodes: Columns) -> bool:
        """False where all nodes are alike to it."""
        return part.gpus > 1 and part.gpu is not None and part.gpu.prefers

    def score(self, part: Part, nodes: Columns, rows: Rows) -> Floats:
        """1 where all preferences can be met together, 0 where none can."""
        fits, _ = needs_of(part, nodes).usable(nodes, rows)
        score: Floats = np.zeros(len(fits))
        wish = part.gpu
        if wish is None or part.gpus < 2:
            return score
        wanted = [
            pair for pair in ((wish.numa == PREFER, False), (False, wish.nvlink == PREFER)) if any(pair)
        ]
        for numa, linked in wanted:
            inside = (fits[:, None, :] & nodes.groups(bool(wish.numa) and numa, linked)[rows]).sum(axis=2)
            score += inside.max(axis=1, initial=0) >= part.gpus
        return score / max(1, len(wanted))
