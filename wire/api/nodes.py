"""Nodes and their GPUs: added, marked, drained and shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional

from wire.frames import GpuProcess, NumaFacts
from wire.hosts import HostSpec
from wire.words import GpuHealth, NodeState


@dataclass(frozen=True)
class NodeAction:
    """Body of drain and resume."""

    why: str = ""


@dataclass(frozen=True)
class NodeRequest:
    """Body of a preflight and of adding a node; `host_key` is taken for the host's own, and pinned then.

    Without a host a preflight asks the one that the node has.
    """

    name: str
    host: Optional[HostSpec] = None
    host_key: str = ""


@dataclass(frozen=True)
class HostKey:
    """Body of trust: the key that a node's host has from now on, as OpenSSH writes it."""

    host_key: str


@dataclass(frozen=True)
class Check:
    """One thing asked of a host: `verdict` is ok, note (works, but know it), unknown or failed."""

    name: str
    verdict: str
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class Preflight:
    """What a host is like; `ready` if it can join as it is. `host_key` is the key that it showed.

    Two with one `boot_id` are one machine.
    """

    name: str
    address: str
    ready: bool
    checks: tuple[Check, ...]
    host_key: str = ""
    fingerprint: str = ""
    boot_id: str = ""


@dataclass(frozen=True)
class NodeMarks:
    """Labels and taints to set on a node, or with null to take away; a taint's name is `key:Effect`."""

    labels: Mapping[str, Optional[str]] = field(default_factory=dict)
    taints: Mapping[str, Optional[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class GpuShare:
    """A GPU of a node, or a part of it."""

    index: int
    uuid: str
    milli: int


@dataclass(frozen=True)
class GpuView:
    """One GPU: what it is, who holds it, how it does."""

    index: int
    uuid: str
    model: str
    memory_mib: int
    numa: int
    health: GpuHealth
    free_milli: int
    jobs: tuple[int, ...] = ()
    utilisation: int = 0
    memory_used_mib: int = 0
    power_w: int = 0
    temperature_c: int = 0
    why: str = ""
    node: str = ""
    pci_bus: str = ""
    power_limit_w: int = 0
    clock_mhz: int = 0
    memory_clock_mhz: int = 0
    throttle: tuple[str, ...] = ()
    ecc_corrected: int = 0
    ecc_uncorrected: int = 0
    rows_remapped: int = 0
    links: tuple[int, ...] = ()
    links_up: int = 0
    links_there: int = 0
    mig: str = ""
    processes: tuple[GpuProcess, ...] = ()
    idle_since: Optional[float] = None
    """Since when it has been held by jobs that run, and done nothing."""


@dataclass(frozen=True)
class GpuList:
    """GPUs by node and index."""

    gpus: tuple[GpuView, ...]
    seq: int


@dataclass(frozen=True)
class NodeView:
    """One node; `away` nodes show what was last known."""

    name: str
    state: NodeState
    cpu_milli: int
    cpu_free_milli: int
    memory_mib: int
    memory_free_mib: int
    numa_nodes: int
    labels: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[GpuView, ...] = ()
    jobs: tuple[int, ...] = ()
    why: str = ""
    since: Optional[float] = None
    version: str = ""
    handling: Mapping[str, str] = field(default_factory=dict)
    driver: str = ""
    cuda: str = ""
    numa: tuple[NumaFacts, ...] = ()
    taints: tuple[str, ...] = ()
    scratch_mib: int = 0
    scratch_free_mib: int = 0


@dataclass(frozen=True)
class NodeList:
    """All nodes by name."""

    nodes: tuple[NodeView, ...]
    seq: int
