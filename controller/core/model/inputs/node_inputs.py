"""Commands of operators on nodes, their hosts and their GPUs, such as Drain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from controller.core.model.dataclass import dataclass
from controller.core.model.inputs.input import Input, NodeCommand
from wire.cluster.hosts import HostSpec
from wire.job.placement.affinity import Taint


@dataclass(frozen=True, slots=True)
class AddNode(Input):
    """Add a node, or change the settings of an existing node. For a node that an operator adds, `host`
    contains the address of its host. None: the node is in the configuration.
    """

    node: str
    labels: Mapping[str, str] = field(default_factory=dict)
    host: HostSpec | None = None
    by: str = ""
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class PinKey(Input):
    """Pin the SSH host key of a node, in the format of OpenSSH."""

    node: str
    key: str
    by: str


@dataclass(frozen=True, slots=True)
class RemoveNode(NodeCommand):
    """Remove a node from the cluster."""


@dataclass(frozen=True, slots=True)
class MarkNode(NodeCommand):
    """Set or remove labels and taints of a node. A label or taint with the value None is removed. The key of
    a taint is `key:Effect`, for example `gpu:NoSchedule`.
    """

    labels: Mapping[str, str | None] = field(default_factory=dict)
    taints: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Drain(NodeCommand):
    """Drain a node. If `empty_by` is None, place no more jobs on the node.

    With `empty_by` (a timed drain), the node must be empty at this time. Jobs that end before `empty_by` may
    still start. Jobs that would still run at `empty_by` are moved or ended.
    """

    why: str = ""
    empty_by: float | None = None


@dataclass(frozen=True, slots=True)
class Resume(NodeCommand):
    """Place jobs on a drained node again."""


@dataclass(frozen=True, slots=True)
class CordonGpu(Input):
    """Cordon the GPU with this index on the node: place no more jobs on the GPU."""

    node: str
    gpu: int
    by: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class ResumeGpu(Input):
    """Return a cordoned GPU to service. Jobs are placed on the GPU after one passed check."""

    node: str
    gpu: int
    by: str


@dataclass(frozen=True, slots=True)
class DeclareLost(NodeCommand):
    """An operator declares that nothing runs on the node any more."""
