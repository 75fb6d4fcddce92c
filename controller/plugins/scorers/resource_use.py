"""Scorers by how much of a node's CPU, memory and GPUs is in use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Floats, Ints, NodeTable, Rows
from controller.core.model.request import PerNodeRequest
from wire.names import WHOLE_GPU


@dataclass(frozen=True, slots=True)
class FitScorer:
    """The `fit` scorer prefers the node that is fullest after the placement, which keeps whole nodes free.

    Best fit. `gpu` is the weight of the GPUs in the score; the CPU has the rest up to 1.
    """

    name: ClassVar[str] = "fit"

    gpu: float = 0.7

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """1 for a node with nothing left free, 0 for one with everything left free."""
        total = nodes.gpu_count[rows] * WHOLE_GPU
        free = np.maximum(nodes.gpu_free[rows], 0).sum(axis=1) - part.gpus * WHOLE_GPU - part.share
        gpu_left = free / np.maximum(total, 1)
        cpu_left = (nodes.cpu_free[rows] - part.cpu_milli) / np.maximum(nodes.cpu_total[rows], 1)
        score: Floats = 1.0 - np.clip(self.gpu * gpu_left + (1.0 - self.gpu) * cpu_left, 0.0, 1.0)
        return score


@dataclass(frozen=True, slots=True)
class LoadScorer:
    """The `load` scorer prefers the node with the most free CPU and memory.

    Scores by the scarcer of CPU and memory after the placement.
    """

    name: ClassVar[str] = "load"

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """1 for a node with everything left free, 0 for one with no CPU or no memory left free."""
        cpu = (nodes.cpu_free[rows] - part.cpu_milli) / np.maximum(nodes.cpu_total[rows], 1)
        memory = (nodes.memory_free[rows] - part.memory_mib) / np.maximum(nodes.memory_total[rows], 1)
        score: Floats = np.clip(np.minimum(cpu, memory), 0.0, 1.0)
        return score


@dataclass(frozen=True, slots=True)
class PackScorer:
    """The `pack` scorer prefers the node that is most in use already, whatever the size of the job.

    Scores by the used part of the GPUs, or of the CPU for jobs without GPUs: the opposite of `spread`.
    """

    name: ClassVar[str] = "pack"

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """1 for a full node, 0 for an idle one."""
        if part.wants_gpus:
            total = nodes.gpu_count[rows] * WHOLE_GPU
            left = np.maximum(nodes.gpu_free[rows], 0).sum(axis=1)
        else:
            total, left = nodes.cpu_total[rows], nodes.cpu_free[rows]
        score: Floats = 1.0 - np.clip(left / np.maximum(total, 1), 0.0, 1.0)
        return score


@dataclass(frozen=True, slots=True)
class SpreadScorer:
    """The `spread` scorer prefers the node with the largest part free, so that jobs disturb each other least.

    Scores by what is left free of the GPUs, or of the CPU for jobs without GPUs.
    """

    name: ClassVar[str] = "spread"

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """1 for a node with everything left free, 0 for one with nothing left free."""
        asked = part.gpus * WHOLE_GPU + part.share
        if asked:
            left = np.maximum(nodes.gpu_free[rows], 0).sum(axis=1) - asked
            total = nodes.gpu_count[rows] * WHOLE_GPU
        else:
            left = nodes.cpu_free[rows] - part.cpu_milli
            total = nodes.cpu_total[rows]
        score: Floats = np.clip(left / np.maximum(total, 1), 0.0, 1.0)
        return score


@dataclass(frozen=True, slots=True)
class BalancedScorer:
    """The `balanced` scorer prefers nodes where CPU, memory and GPUs are used to similar degrees.

    Scores by the difference between the most and the least used resource after the placement.
    """

    name: ClassVar[str] = "balanced"

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """1 where all are used to the same degree, 0 where one is used up and another is unused."""
        cpu = _used(nodes.cpu_free[rows], part.cpu_milli, nodes.cpu_total[rows])
        memory = _used(nodes.memory_free[rows], part.memory_mib, nodes.memory_total[rows])
        free = np.maximum(nodes.gpu_free[rows], 0).sum(axis=1)
        total = nodes.gpu_count[rows] * WHOLE_GPU
        gpu = _used(free, part.gpus * WHOLE_GPU + part.share, total)
        most, least = np.maximum(cpu, memory), np.minimum(cpu, memory)
        spread = np.where(total, np.maximum(most, gpu) - np.minimum(least, gpu), most - least)
        score: Floats = 1.0 - np.clip(spread, 0.0, 1.0)
        return score


def _used(free: Ints, asked: int, total: Ints) -> Floats:
    used: Floats = 1.0 - (free - asked) / np.maximum(total, 1)
    return used


@dataclass(frozen=True, slots=True)
class PowerScorer:
    """The `power` scorer prefers nodes that are in use, so that idle nodes can stay in low-power states.

    Scores by whether any CPU or memory of the node is in use.
    """

    name: ClassVar[str] = "power"

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """1 for a node in use, 0 for an idle one."""
        idle = (nodes.cpu_free[rows] >= nodes.cpu_total[rows]) & (
            nodes.memory_free[rows] >= nodes.memory_total[rows]
        )
        return np.where(idle, 0.0, 1.0)
