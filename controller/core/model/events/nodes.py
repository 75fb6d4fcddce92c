"""Events about nodes, hosts and GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from controller.core.model.dataclass import dataclass
from controller.core.model.events.event import ClusterEvent, NodeEvent
from wire.agent.reports import NodeFacts
from wire.cluster.hosts import HostSpec
from wire.job.placement.affinity import Taint
from wire.names import GpuHealth


@dataclass(frozen=True, slots=True)
class NodeAdded(NodeEvent):
    """A node was added, or its configuration was changed. `host` and `by` are set if an operator ordered the
    change. `host` and `by` are empty if the change comes from scheduler.toml.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    host: HostSpec | None = None
    by: str = ""
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRemoved(NodeEvent):
    """The node was removed from the cluster. Only a node on which no job holds resources can be removed."""

    by: str


@dataclass(frozen=True, slots=True)
class NodeMarked(NodeEvent):
    """An operator set or removed labels or taints of the node. A label or taint with the value None is
    removed. The key of a taint is `key:Effect`.
    """

    by: str
    labels: Mapping[str, str | None] = field(default_factory=dict)
    taints: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Overcommit:
    """The overcommit factors of a node: how many times its CPUs and its memory may be allocated. Example:
    with a CPU factor of 2, jobs may hold 128 CPUs on a node that has 64.
    """

    cpu: float = 1.0
    memory: float = 1.0

    def of(self, facts: NodeFacts) -> tuple[int, int]:
        """Return the CPU (in 1/1000 CPU) and the memory (in MiB) that jobs may hold on a node with the
        hardware `facts`.
        """
        return round(facts.cpu_milli * self.cpu), round(facts.memory_mib * self.memory)


AS_IT_IS = Overcommit()


@dataclass(frozen=True, slots=True)
class NodeJoined(NodeEvent):
    """An agent connected and sent its hello. The event contains the hardware of the node and the overcommit
    factors.
    """

    facts: NodeFacts
    boot_id: str
    version: str = ""
    overcommit: Overcommit = AS_IT_IS


@dataclass(frozen=True, slots=True)
class NodeWentAway(NodeEvent):
    """No agent of the node is connected any more. Running jobs continue; no job is placed on the node."""

    why: str


@dataclass(frozen=True, slots=True)
class NodeWentDown(NodeEvent):
    """The node has been disconnected for longer than `down_after_s` seconds. Backfill and forecasts no longer
    plan starts on the node.
    """


@dataclass(frozen=True, slots=True)
class NodeDeclaredLost(NodeEvent):
    """An operator declared that no process runs on the node any more. The jobs on the node count as lost:
    they end or are queued again.
    """

    by: str


@dataclass(frozen=True, slots=True)
class NodeDrained(NodeEvent):
    """The node was drained. If `empty_by` is None, no job is placed on the node any more, and running jobs
    continue.

    With `empty_by` (a timed drain), the node must be empty at this time. Jobs that end before `empty_by` may
    still start. Jobs that would still run at `empty_by` are moved or ended.
    """

    why: str
    by: str
    empty_by: float | None = None


@dataclass(frozen=True, slots=True)
class DrainBegan(NodeEvent):
    """The time `empty_by` of a timed drain (NodeDrained) has come. No job is placed on the node any more."""


@dataclass(frozen=True, slots=True)
class NodeResumed(NodeEvent):
    """The drain of the node was ended: jobs are placed on this node again."""

    by: str


@dataclass(frozen=True, slots=True)
class GpuHealthRecorded(NodeEvent):
    uuid: str
    health: GpuHealth
    why: str = ""
    needs: str = ""
    falls: int = 0
    good: int = 0
    due: float = 0.0
    by: str = ""


@dataclass(frozen=True, slots=True)
class HostKeyPinned(ClusterEvent):
    """The SSH host key of a node was pinned. Removing the node removes the key."""

    node: str
    key: str
    by: str
