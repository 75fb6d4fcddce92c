"""Nodes that do not exist yet, but that a machine pool could start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from controller.core.cluster.labels_and_taints import NodeOverrides
from controller.core.cluster.node import Node
from controller.core.cluster.nodes import Nodes
from wire.agent.reports import NodeFacts
from wire.job.placement.affinity import Taint


@dataclass(frozen=True, slots=True)
class HypotheticalNodes:
    """At most `most` nodes with these resources, labels and taints, ready in `ready_in_s` seconds."""

    facts: NodeFacts
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    ready_in_s: float = 0.0
    most: int = 1

    def facts_of(self, name: str) -> NodeFacts:
        """Return the resources of one of the nodes. Its GPUs have UUIDs of their own."""
        return replace(
            self.facts, gpus=tuple(replace(gpu, uuid=f"{gpu.uuid}-{name}") for gpu in self.facts.gpus)
        )


def with_hypothetical(nodes: Nodes, more: Iterable[HypotheticalNodes], most: int) -> Nodes:
    """Return copies of all nodes without jobs, and at most `most` of each of the hypothetical nodes."""
    found = Nodes()
    found.copy_empty(nodes)
    for index, each in enumerate(more):
        for number in range(min(most, each.most)):
            name = f"pool-{index}-{number}"
            marks = NodeOverrides(configured=each.taints)
            found.insert(
                Node(name, dict(each.labels), each.facts_of(name), up=True, boot_id=name, marks=marks)
            )
    return found
