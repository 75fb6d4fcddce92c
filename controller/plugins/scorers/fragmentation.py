"""Prefers the node where a job leaves the fewest GPU parts that nobody can use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import ABSENT, Columns, Floats, Rows
from controller.core.needs import needs_of
from controller.core.requests import Part
from wire.words import WHOLE_GPU

_FULL = 2 * WHOLE_GPU


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """Fragmentation gradient: how much more of the free GPUs is lost to those who want whole ones.

    Lost is what is left of a GPU that is begun, and a GPU for which the node has no even part of its CPUs
    left. Unlike `thrift` this asks nobody what is wanted.
    """

    name: ClassVar[str] = "fragmentation"

    def score(self, part: Part, nodes: Columns, rows: Rows) -> Floats:
        """A half where nothing is gained or lost; more where a begun GPU is used up."""
        free = nodes.gpu_free[rows]
        cpu = nodes.cpu_free[rows]
        even = np.maximum(nodes.cpu_total[rows] / np.maximum(nodes.gpu_count[rows], 1), 1.0)
        whole = (free == WHOLE_GPU).sum(axis=1)
        begun = np.where((free > 0) & (free < WHOLE_GPU), free, 0).sum(axis=1)
        taken, left = np.full(len(free), part.gpus), np.zeros(len(free))
        if part.wants_gpus and not part.gpus and free.shape[1]:
            fits, needed = needs_of(part, nodes).usable(nodes, rows)
            least = np.where(fits & (free != ABSENT), free, _FULL)
            slot = least.argmin(axis=1)
            tightest = np.take_along_axis(least, slot[:, None], axis=1)[:, 0]
            share = np.broadcast_to(needed, free.shape)[np.arange(len(free)), slot]
            opens = tightest == WHOLE_GPU
            taken = opens.astype(np.int64)
            left = np.where(opens, WHOLE_GPU - share, -share).astype(np.float64)
        before = begun + WHOLE_GPU * np.maximum(0, whole - cpu / even)
        after = begun + left + WHOLE_GPU * np.maximum(0, whole - taken - (cpu - part.cpu_milli) / even)
        score: Floats = 1.0 / (1.0 + np.exp(np.clip((after - before) / WHOLE_GPU, -50.0, 50.0)))
        return score
