"""Scorers for the preferences of jobs about node labels, taints, data sets, other jobs, and links between
GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.gpus.gpu_requirements import gpu_needs_of
from controller.core.cluster.node_table import Floats, NodeTable, Rows
from controller.core.model.request import PerNodeRequest
from wire.job.datasets import parse_dataset
from wire.job.placement.affinity import Effect, untolerated_taint
from wire.job.placement.gpu_requirements import PREFER


@dataclass(frozen=True, slots=True)
class AffinityScorer:
    """The `affinity` scorer prefers nodes whose labels meet many of the job's node affinity preferences. Each
    preference has a weight.
    """

    name: ClassVar[str] = "affinity"

    def concerns(self, part: PerNodeRequest, nodes: NodeTable) -> bool:
        return bool(part.preferences)

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return the sum of the weights of the preferences that the node meets, divided by the sum of all
        weights.
        """
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        wanted, labels = part.preferences, nodes.labels
        total = sum(each.weight for each in wanted) or 1
        return np.array(
            [sum(each.weight for each in wanted if each.term.matches(labels[row])) / total for row in chosen],
            dtype=np.float64,
        )


@dataclass(frozen=True, slots=True)
class TaintScorer:
    """The `taints` scorer prefers nodes without a PreferNoSchedule taint that the job does not tolerate.

    The `taints` filter checks taints with the other effects.
    """

    name: ClassVar[str] = "taints"

    def concerns(self, part: PerNodeRequest, nodes: NodeTable) -> bool:
        return any(nodes.taints)

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return 1 for a node without an untolerated PreferNoSchedule taint, 0 for a node with one."""
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        taints, borne = nodes.taints, part.tolerations
        return np.array(
            [untolerated_taint(taints[row], borne, Effect.PREFER_NO_SCHEDULE) is None for row in chosen],
            dtype=np.float64,
        )


@dataclass(frozen=True, slots=True)
class DataScorer:
    """The `data` scorer prefers nodes with the data sets that a job reads.

    A node has the whole data set `imagenet` if it has the label `data/imagenet`, with any value. If a job on
    the node has recently read the data set, the node counts as having a part of the data set
    (`DatasetReads.levels`).
    """

    name: ClassVar[str] = "data"

    prefix: str = "data/"

    def concerns(self, part: PerNodeRequest, nodes: NodeTable) -> bool:
        return bool(part.datasets)

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return the fraction of the job's data sets, by size, that the node has. For a data set of unknown
        size, the mean size of the job's other data sets counts.
        """
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        labels = [nodes.labels[row] for row in chosen]
        wanted = [parse_dataset(text) for text in part.datasets]
        sizes = [size for _, size in wanted if size]
        usual = sum(sizes) / len(sizes) if sizes else 1.0
        score: Floats = np.zeros(len(labels))
        for name, size in wanted:
            levels = {} if nodes.dataset_reads is None else nodes.dataset_reads().levels(name)
            key = self.prefix + name
            score += (size or usual) * np.array(
                [1.0 if key in each else levels.get(each.get("node", ""), 0.0) for each in labels]
            )
        return score / max(1.0, sum(size or usual for _, size in wanted))


@dataclass(frozen=True, slots=True)
class JobAffinityScorer:
    """The `company` scorer prefers nodes that meet many of the job's preferred job affinity terms: to be near
    to, or far from, other jobs.
    """

    name: ClassVar[str] = "company"

    def concerns(self, part: PerNodeRequest, nodes: NodeTable) -> bool:
        return nodes.job_affinity is not None and any(term.prefer for term in part.company)

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return the fraction of the job's preferred job affinity terms that the node meets."""
        score: Floats = np.zeros(nodes.height)
        wanted = [term for term in part.company if term.prefer]
        if nodes.job_affinity is not None:
            for term in wanted:
                score += nodes.job_affinity().nodes_meeting(part, term, nodes)
        return score[rows] / max(1, len(wanted))


@dataclass(frozen=True, slots=True)
class GpuTopologyScorer:
    """The `wiring` scorer prefers nodes where the job gets GPUs on one NUMA node or GPUs linked by NVLink, if
    the job prefers such GPUs.
    """

    name: ClassVar[str] = "wiring"

    def concerns(self, part: PerNodeRequest, nodes: NodeTable) -> bool:
        return part.gpus > 1 and part.gpu is not None and part.gpu.prefers

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return the fraction of the job's preferences (GPUs on one NUMA node, GPUs linked by NVLink) that
        the free GPUs of the node can meet.
        """
        fits, _ = gpu_needs_of(part, nodes).usable(nodes, rows)
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
