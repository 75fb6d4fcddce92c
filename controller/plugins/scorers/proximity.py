"""The `proximity` scorer places the members of a gang near to each other: it prefers nodes in a topology
domain, such as a rack, where many nodes have room for the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.gpus.gpu_requirements import gpu_needs_of
from controller.core.cluster.node_table import Floats, NodeTable, Rows
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class ProximityScorer:
    """The `proximity` scorer prefers nodes in a topology domain where many nodes can hold the request. A
    topology domain is the nodes with the same value of a node label, such as `rack`. The option `label` names
    the label.
    """

    name: ClassVar[str] = "proximity"
    wide: ClassVar[bool] = True

    label: str = "rack"

    def concerns(self, part: PerNodeRequest, nodes: NodeTable) -> bool:
        return any(self.label in labels for labels in nodes.labels)

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return the number of nodes in the node's topology domain that can hold the request, divided by the
        number of all nodes; 0 for a node without the label.
        """
        room = nodes.open & (nodes.cpu_free >= part.cpu_milli) & (nodes.memory_free >= part.memory_mib)
        if part.wants_gpus:
            room &= gpu_needs_of(part, nodes).nodes_fitting(nodes, slice(None))
        values = [labels.get(self.label) for labels in nodes.labels]
        codes = {value: code for code, value in enumerate(dict.fromkeys(values))}
        domain = np.array([codes[value] for value in values], dtype=np.intp)
        near = np.bincount(domain, weights=room, minlength=len(codes) or 1) / max(1, nodes.height)
        if None in codes:
            near[codes[None]] = 0.0
        score: Floats = near[domain][rows].astype(np.float64)
        return score
