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
    """At most `most` nodes that a machine pool could start, all with these resources, labels and taints. The
    nodes are ready `ready_in_s` seconds after the pool has started them.
    """

    facts: NodeFacts
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    ready_in_s: float = 0.0
    most: int = 1

    def facts_of(self, name: str) -> NodeFacts:
        """Return the resources of the node with this name. Its GPU UUIDs differ from those of all other
        nodes.
        """
        return replace(
            self.facts, gpus=tuple(replace(gpu, uuid=f"{gpu.uuid}-{name}") for gpu in self.facts.gpus)
        )


def with_hypothetical(nodes: Nodes, more: Iterable[HypotheticalNodes], most: int) -> Nodes:
    """Return a copy of `nodes` on which no job runs. The copy also has the nodes of each entry in `more`, but
    at most `most` for each entry.
    """
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
