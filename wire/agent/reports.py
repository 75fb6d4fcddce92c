"""The messages of agents to the controller: facts about the node, the states of attempts, and answers."""

from __future__ import annotations

from dataclasses import field
from typing import Mapping, Optional

from wire.dataclass import dataclass
from wire.job.steps import Step
from wire.names import GpuHealth, TroubleKind

PROTOCOL = 1


@dataclass(frozen=True)
class GpuFacts:
    """One GPU as the host reports it. `links` has the `index` of each GPU with an NVLink to this GPU.

    A MIG instance is reported like a GPU, with its own UUID and memory, and with its profile in `mig`. The
    GPU that contains the instance is not reported. `compute` is the compute capability, such as 9.0; empty if
    unknown.
    """

    index: int
    uuid: str
    model: str
    memory_mib: int
    numa: int = 0
    pci_bus: str = ""
    links: tuple[int, ...] = ()
    health: GpuHealth = GpuHealth.OK
    why: str = ""
    compute: str = ""
    mig: str = ""
    power_limit_w: int = 0
    label: str = ""
    """The number that the driver gives the GPU; empty if this number equals `index`. The two differ on hosts
    with MIG, because `index` counts MIG instances as GPUs.
    """

    @property
    def number(self) -> str:
        """Return the number that the driver gives the GPU: `3`, or `2:1` for the second MIG instance of GPU
        2.
        """
        return self.label or str(self.index)


@dataclass(frozen=True)
class NumaFacts:
    """One NUMA node of a host: its CPUs in the kernel's format, such as `0-3,8-11`, and its distance to
    each NUMA node.
    """

    node: int
    cpus: str = ""
    memory_mib: int = 0
    distances: tuple[int, ...] = ()


@dataclass(frozen=True)
class NodeFacts:
    """The resources of a host. If the resources change, the agent reports the new resources only in its next
    Hello, the first message of a connection. `storage_mib` is the local disk space for scratch, in MiB.
    """

    cpu_milli: int
    memory_mib: int
    gpus: tuple[GpuFacts, ...] = ()
    numa_nodes: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)
    address: str = "127.0.0.1"
    storage_mib: int = 0
    driver: str = ""
    cuda: str = ""
    numa: tuple[NumaFacts, ...] = ()
    handling: Mapping[str, str] = field(default_factory=dict)
    """How the host runs jobs: a dict from a topic, such as the limits of jobs, to a text for users."""
    runtime: str = ""
    """The name and version of the host's container runtime, such as podman 4.9; empty if the host has none.
    """
    image_gpus: str = ""
    """The reason why containers cannot use GPUs on this host; empty if containers can use GPUs."""
    leases: bool = True
    """True if the host itself ends a job whose lease is over. If False, a job on this node never counts as
    lost because the node is silent.
    """


@dataclass(frozen=True)
class GpuUse:
    """The GPU usage of an attempt: the mean and the 95th percentile of utilisation in percent, the peak
    memory in MiB, and the energy in watt-hours.
    """

    mean: float = 0.0
    p95: int = 0
    peak_mib: int = 0
    wh: float = 0.0


@dataclass(frozen=True)
class HostUse:
    """The CPU time of an attempt on one node in seconds, and the memory of all its processes together in MiB,
    now and at the peak. Memory that the kernel uses to cache files does not count.
    """

    cpu_s: float = 0.0
    memory_mib: int = 0
    peak_mib: int = 0


@dataclass(frozen=True)
class Usage:
    """The resources that one attempt used on one node. `cpu_s` is CPU time in seconds. `max_rss_mib` is the
    peak memory of the largest process in MiB. `memory_mib` is the highest sample of the memory of all
    processes together.
    """

    cpu_s: float = 0.0
    max_rss_mib: int = 0
    gpu: Optional[GpuUse] = None
    memory_mib: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """The newest checkpoint of an attempt: the path of a file or directory, its size in bytes, and its
    modification time in seconds since 1970.
    """

    path: str
    size: int = 0
    at: float = 0.0


@dataclass(frozen=True)
class AttemptStatus:
    """The state of one attempt as recorded in the spool. `pid` is set once the attempt has started,
    `ended_at` once it has ended.

    `code` is the exit code; `signal` is the signal that killed the attempt. If Corral ended the attempt or
    could not start the attempt, `why` is the reason: time_limit, cancelled, launch_failed: …,
    supervisor_lost.
    """

    job: int
    attempt: int
    pid: Optional[int] = None
    started_at: Optional[float] = None
    ended_at: Optional[float] = None
    code: Optional[int] = None
    signal: Optional[int] = None
    why: str = ""
    usage: Optional[Usage] = None
    checkpoint: Optional[Checkpoint] = None
    ready: bool = False
    """True from the time at which the attempt has reached the barrier of its gang, where it waits for the
    message Go.
    """
    tail: str = ""
    """The last lines of the log of an attempt that failed. The controller finds the cause of the failure in
    these lines. The lines are not stored.
    """
    failure: str = ""
    """The name of the failure class that the controller found from `tail` and the exit status."""
    steps: tuple[Step, ...] = ()
    """The steps of an ended attempt. The steps of a running attempt are in StepsReport."""

    @property
    def ran(self) -> bool:
        """Return whether a process of the attempt has run, even if the agent did not report the start."""
        return self.started_at is not None or self.code is not None or self.signal is not None


@dataclass(frozen=True)
class Hello:
    """The first message of every connection: the name of the node, the resources of its host, and the state
    of its attempts.
    """

    node: str
    version: str
    boot_id: str
    incarnation: str
    facts: NodeFacts
    attempts: tuple[AttemptStatus, ...] = ()
    clock: Optional[float] = None
    protocol: int = PROTOCOL
    journal: str = ""
    """The epoch, number and hash of the newest journal entry that a controller has named in a Ping to this
    agent; empty if none has.
    """


@dataclass(frozen=True)
class Report:
    """The state of an attempt after its start or end. The agent sends the report again after every Hello,
    until the message Settle of the controller confirms the report.
    """

    status: AttemptStatus


@dataclass(frozen=True)
class GpuSample:
    """The measured values of one GPU at one time. `throttle` has the reasons why the GPU's clocks are
    lowered. GPU samples are not written to the journal.
    """

    uuid: str
    utilisation: int = 0
    memory_used_mib: int = 0
    power_w: int = 0
    temperature_c: int = 0
    clock_mhz: int = 0
    memory_clock_mhz: int = 0
    throttle: tuple[str, ...] = ()
    ecc_corrected: int = 0
    ecc_uncorrected: int = 0
    rows_remapped: int = 0
    links_up: int = 0
    links: int = 0
    remap_pending: bool = False
    """True if the GPU will replace a damaged row of its memory at the next reset."""


@dataclass(frozen=True)
class AttemptUse:
    """The usage of a running attempt on this node, from the attempt's start until now: `use` has the GPUs,
    and `host` has CPU and memory. None means that there is no measurement.
    """

    job: int
    attempt: int
    use: Optional[GpuUse] = None
    host: Optional[HostUse] = None


@dataclass(frozen=True)
class GpuReport:
    """GPU readings, or the usage of attempts; one of both is empty. `samples` has the new readings of the
    GPUs whose values have changed by more than small steps (such as 256 MiB of memory) since their last
    reading was sent. `uses` has the usage of all running attempts.
    """

    samples: tuple[GpuSample, ...]
    uses: tuple[AttemptUse, ...] = ()


@dataclass(frozen=True)
class HealthReport:
    """A change of an attempt's health: the health check passes again, or has failed so often that the attempt
    counts as unhealthy.
    """

    job: int
    attempt: int
    healthy: bool
    why: str = ""


@dataclass(frozen=True)
class GpuProcess:
    """A process on a GPU. `job` is the job that started the process, or None if no job started it."""

    uuid: str
    pid: int
    user: str
    command: str
    memory_mib: int = 0
    job: Optional[int] = None


@dataclass(frozen=True)
class GpuProcesses:
    """All processes on the GPUs of a node. The agent sends the list when a process has begun or ended, or
    when the GPU memory of a process has changed by at least 256 MiB.
    """

    processes: tuple[GpuProcess, ...]


@dataclass(frozen=True)
class GpuTrouble:
    """The agent has found a fault of a GPU. The controller decides whether jobs may still use the GPU."""

    uuid: str
    kind: TroubleKind
    why: str = ""
    xid: Optional[int] = None


@dataclass(frozen=True)
class GpuChecked:
    """The answer to CheckGpu. `ok` is True if the GPU is healthy; otherwise `why` describes the fault."""

    uuid: str
    ok: bool
    why: str = ""
    occupied: bool = False
    """True if the only problem is that the GPU is not clean: a process that no job started uses the GPU, or
    memory of an ended job is not free. The GPU itself is then not faulty.
    """


@dataclass(frozen=True)
class GpuReset:
    """The answer to ResetGpu. `ok` is True if the GPU was reset; otherwise `why` is the reason why the reset
    failed.
    """

    uuid: str
    ok: bool
    why: str = ""


@dataclass(frozen=True)
class LogChunk:
    """A part of the log that a ReadLog requested. `data` is base64, `offset` is the position of its first
    byte in the log, and `end` is True in the last part.
    """

    request: int
    data: str = ""
    end: bool = False
    error: str = ""
    offset: int = 0


@dataclass(frozen=True)
class LogFound:
    """The answer to a SearchLog. `found` is the byte at which the match begins; None if there is no match.

    Without a match, the search has read the log up to the byte `reached`. `size` is the size of the log.
    """

    request: int
    found: Optional[int] = None
    reached: int = 0
    size: int = 0
    error: str = ""


@dataclass(frozen=True)
class ShellOutput:
    """Output of a `corral exec` command, which runs in the allocation of a job. `data` has the output as
    base64.
    """

    request: int
    data: str
    stream: str = "stdout"


@dataclass(frozen=True)
class ShellEnded:
    """The end of a `corral exec` command. If the command could not start, or Corral ended the command,
    `error` is the reason. `cpu_s` is the CPU time that the command used, and `max_rss_kib` its peak memory.
    """

    request: int
    code: Optional[int] = None
    signal: Optional[int] = None
    error: str = ""
    cpu_s: float = 0.0
    max_rss_kib: int = 0


@dataclass(frozen=True)
class Pong:
    """The answer to Ping. `clock` is the host's clock, in seconds since boot."""

    beat: int
    clock: Optional[float] = None
