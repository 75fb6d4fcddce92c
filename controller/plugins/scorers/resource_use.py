"""Scorers that compare how much of the CPU, memory and GPUs of the nodes is free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Floats, Ints, NodeTable, Rows
from controller.core.model.request import PerNodeRequest
from wire.names import WHOLE_GPU


@dataclass(frozen=True, slots=True)
class FitScorer:
    """The `fit` scorer prefers the node with the smallest free fraction of GPUs and CPUs after the placement
    (best fit). So other nodes stay wholly free.

    `gpu` is the weight of the GPUs in the score, and 1 - `gpu` the weight of the CPUs.
    """

    name: ClassVar[str] = "fit"

    gpu: float = 0.7

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return 1 minus the weighted mean of the free fractions of GPUs and CPUs after the placement."""
        total = nodes.gpu_count[rows] * WHOLE_GPU
        free = np.maximum(nodes.gpu_free[rows], 0).sum(axis=1) - part.gpus * WHOLE_GPU - part.share
        gpu_left = free / np.maximum(total, 1)
        cpu_left = (nodes.cpu_free[rows] - part.cpu_milli) / np.maximum(nodes.cpu_total[rows], 1)
        score: Floats = 1.0 - np.clip(self.gpu * gpu_left + (1.0 - self.gpu) * cpu_left, 0.0, 1.0)
        return score


@dataclass(frozen=True, slots=True)
class LoadScorer:
    """The `load` scorer prefers nodes with much free CPU and much free memory."""

    name: ClassVar[str] = "load"

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return the free fraction of CPU or of memory after the placement, whichever is smaller."""
        cpu = (nodes.cpu_free[rows] - part.cpu_milli) / np.maximum(nodes.cpu_total[rows], 1)
        memory = (nodes.memory_free[rows] - part.memory_mib) / np.maximum(nodes.memory_total[rows], 1)
        score: Floats = np.clip(np.minimum(cpu, memory), 0.0, 1.0)
        return score


@dataclass(frozen=True, slots=True)
class PackScorer:
    """The `pack` scorer prefers the node with the largest used fraction before the placement.

    For a job with GPUs it compares the used fraction of the GPUs, for a job without GPUs that of the CPU.
    """

    name: ClassVar[str] = "pack"

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return the used fraction of GPUs or CPU: 1 for a full node, 0 for an idle node."""
        if part.wants_gpus:
            total = nodes.gpu_count[rows] * WHOLE_GPU
            left = np.maximum(nodes.gpu_free[rows], 0).sum(axis=1)
        else:
            total, left = nodes.cpu_total[rows], nodes.cpu_free[rows]
        score: Floats = 1.0 - np.clip(left / np.maximum(total, 1), 0.0, 1.0)
        return score


@dataclass(frozen=True, slots=True)
class SpreadScorer:
    """The `spread` scorer prefers the node with the largest free fraction after the placement, so that few
    jobs share a node.

    For a job with GPUs it compares the free fraction of the GPUs, for a job without GPUs that of the CPU.
    """

    name: ClassVar[str] = "spread"

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return the free fraction of GPUs or CPU after the placement: 0 for a node that is then full."""
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
    """The `balanced` scorer prefers nodes whose CPU, memory and GPUs are used to similar fractions after the
    placement.
    """

    name: ClassVar[str] = "balanced"

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return 1 minus the difference between the highest and the lowest used fraction of CPU, memory and
        GPUs after the placement. For a node without GPUs, compare CPU and memory only.
        """
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
    """The `power` scorer prefers busy nodes, so that idle nodes can stay in low-power states."""

    name: ClassVar[str] = "power"

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return 1 for a node with some CPU or memory in use, 0 for an idle node."""
        idle = (nodes.cpu_free[rows] >= nodes.cpu_total[rows]) & (
            nodes.memory_free[rows] >= nodes.memory_total[rows]
        )
        return np.where(idle, 0.0, 1.0)
