"""API bodies for nodes and their GPUs: to add, label, drain and show nodes."""

from __future__ import annotations

from dataclasses import field
from typing import Mapping, Optional

from wire.agent.reports import GpuProcess, NumaFacts
from wire.cluster.hosts import HostSpec
from wire.dataclass import dataclass
from wire.names import GpuHealth, NodeState


@dataclass(frozen=True)
class NodeAction:
    """The body of the requests to drain, resume or remove a node, to declare a node lost, and to cordon or
    resume one GPU of a node.
    """

    why: str = ""


@dataclass(frozen=True)
class NodeRequest:
    """The body of a request to check a host (preflight), or to add a host as a node. The SSH host key in
    `host_key` is accepted and pinned.

    A preflight without `host` checks the present host of an existing node.
    """

    name: str
    host: Optional[HostSpec] = None
    host_key: str = ""


@dataclass(frozen=True)
class HostKey:
    """The body of a request to trust a new SSH host key of a node. The key has the format of OpenSSH."""

    host_key: str


@dataclass(frozen=True)
class Check:
    """The result of one check of a host. `verdict` is ok, note, unknown or failed. With note, the check has
    passed, and `found` has a remark.
    """

    name: str
    verdict: str
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class Preflight:
    """The result of all checks of a host. `ready` is True if the host can be added as a node. `host_key` is
    the SSH key that the host sent.

    Two hosts with the same `boot_id` are the same machine.
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
    """Labels and taints to set on a node, by name. The value null removes the label or taint. The name of a
    taint is `key:Effect`.
    """

    labels: Mapping[str, Optional[str]] = field(default_factory=dict)
    taints: Mapping[str, Optional[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class GpuShare:
    """A GPU of a node, or a part of it, that is allocated to a job. `milli` is the part in thousandths of
    the GPU.
    """

    index: int
    uuid: str
    milli: int
    label: str = ""

    @property
    def number(self) -> str:
        """Return the number that the driver gives the GPU: `3`, or `2:1` for the second MIG instance of GPU
        2.
        """
        return self.label or str(self.index)


@dataclass(frozen=True)
class GpuView:
    """One GPU: its properties, jobs, health and readings."""

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
    """The time since which the GPU is idle although running jobs hold the GPU. None if the GPU is busy or not
    allocated.
    """
    heard: bool = True
    """True if the agent of the GPU's node is connected. Otherwise the readings of the GPU are unknown, and
    their fields are 0.
    """
    job_labels: tuple[str, ...] = ()
    """Labels of the `jobs`: 17, or 12_3 for an element of array 12."""
    label: str = ""

    @property
    def number(self) -> str:
        """Return the number that the driver gives the GPU: `3`, or `2:1` for the second MIG instance of GPU
        2.
        """
        return self.label or str(self.index)


@dataclass(frozen=True)
class GpuList:
    """A list of GPUs, ordered by node and by index."""

    gpus: tuple[GpuView, ...]
    seq: int


@dataclass(frozen=True)
class DatasetRead:
    """A data set that jobs have read on a node, with the time of the last use."""

    name: str
    at: float


@dataclass(frozen=True)
class NodeDrain:
    """The body of the request to drain a node. With `empty_by` (seconds since 1970), jobs that end before
    this time may still start. Jobs that still run at this time are moved or ended. With `dry_run` nothing
    changes, and the answer shows what would happen.
    """

    why: str = ""
    empty_by: Optional[float] = None
    dry_run: bool = False


@dataclass(frozen=True)
class LeavingJob:
    """A job on a node that is to be empty by a given time.

    `how` is `ends` if the job's time limit ends the job before that time. It is `moved` if the job is stopped
    and continues on other nodes, and `ended` if the job is stopped and may not be queued again. For `ends`,
    `at` is the latest end of the job. For `moved` and `ended`, `at` is the time at which Corral begins to
    stop the job.
    """

    job: int
    label: str
    name: str
    user: str
    how: str
    at: float


@dataclass(frozen=True)
class TimedDrainView:
    """A timed drain: the node is to be empty at `empty_by`. `jobs` has the jobs that are on the node now."""

    empty_by: float
    by: str
    why: str = ""
    jobs: tuple[LeavingJob, ...] = ()


@dataclass(frozen=True)
class NodeView:
    """One node. For a node that does not report, the fields have the last known values, and the readings of
    its GPUs are 0.
    """

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
    job_labels: tuple[str, ...] = ()
    """The labels of the jobs in `jobs`, in the same order: 17, or 12_3 for an element of array 12."""
    switches: tuple[str, ...] = ()
    """The network switches above the node, the widest first; empty without [topology]."""
    drain: Optional[TimedDrainView] = None
    """The timed drain of the node whose time `empty_by` has not been reached; None if there is none."""
    datasets: tuple[DatasetRead, ...] = ()
    """The data sets that jobs have read on the node within the last [datasets] retention_s seconds, the
    latest use first.
    """

    @property
    def state_word(self) -> str:
        """Return the state of the node as shown to users. A drained node is `draining` until its last job has
        ended. With a timed drain, the node is `draining` until the time `empty_by`.
        """
        if self.drain is not None and self.state is NodeState.UP:
            return "draining"
        return "draining" if self.state is NodeState.DRAINED and self.jobs else self.state.value


@dataclass(frozen=True)
class NodeList:
    """All nodes, ordered by name."""

    nodes: tuple[NodeView, ...]
    seq: int
