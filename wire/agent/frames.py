"""The messages (frames) between controller and agent. Each is one line with a JSON object, whose field "t"
is the kind of message.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Union, get_args

from wire.codec import Malformed, decode, dumps, encode
from wire.job.health import HealthCheck
from wire.names import GpuHealth, TroubleKind

PROTOCOL = 1
MAX_FRAME = 64 * 1024 * 1024
MOST = 1 << 53
"""The largest whole number in a message. Every JSON reader handles numbers up to this one exactly, and
their sums fit into the columns of the database.
"""


@dataclass(frozen=True)
class GpuFacts:
    """One GPU as the host reports it. `links` has the `index` of each GPU that NVLink connects to it.

    A MIG instance is reported like a GPU, with its own UUID and memory, and with its profile in `mig`.
    The GPU that contains it is not reported. `compute` is the compute capability, such as 9.0; empty if
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
    """The GPU number of the driver, if it differs from `index`, which counts MIG instances as GPUs."""

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
    """The resources of a host. If the resources change, the agent reports them only in its next Hello, the
    first message of a connection. `storage_mib` is local disk for scratch.
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
    """How the host runs jobs: one text for each topic, such as the user account of the jobs and their
    limits.
    """
    runtime: str = ""
    """The name and version of the host's container runtime; empty if the host has none."""
    image_gpus: str = ""
    """Why containers cannot use GPUs on this host; empty if they can."""


@dataclass(frozen=True)
class GpuUse:
    """GPU usage of an attempt: mean and 95th percentile of utilisation in percent, peak memory in MiB,
    energy in watt-hours.
    """

    mean: float = 0.0
    p95: int = 0
    peak_mib: int = 0
    wh: float = 0.0


@dataclass(frozen=True)
class Usage:
    """CPU time in seconds, peak memory in MiB, and GPU usage of one attempt on one node."""

    cpu_s: float = 0.0
    max_rss_mib: int = 0
    gpu: Optional[GpuUse] = None


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

    `code` is the exit code; `signal` is the signal that killed the attempt. If Corral ended the attempt
    or could not start it, `why` is the reason: time_limit, cancelled, launch_failed: …, supervisor_lost.
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
    """True while the attempt waits for Go, at the barrier of its gang."""

    @property
    def ran(self) -> bool:
        """Return whether a process of the attempt has run, even if its start was not reported."""
        return self.started_at is not None or self.code is not None or self.signal is not None


# --- agent to controller ---


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


@dataclass(frozen=True)
class Report:
    """The state of an attempt after its start or end. The agent sends the report again after every Hello,
    until the controller confirms it with the message Settle.
    """

    status: AttemptStatus


@dataclass(frozen=True)
class GpuSample:
    """A reading of one GPU. `throttle` has the reasons why the GPU's clocks are lowered. Readings are not
    written to the journal.
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
    """The GPU usage of a running attempt on this node, from the attempt's start until now."""

    job: int
    attempt: int
    use: GpuUse


@dataclass(frozen=True)
class GpuReport:
    """GPU readings and GPU usage. `samples` has the readings that have changed noticeably since the agent
    sent them last. `uses` has the GPU usage of all running attempts, or is empty.
    """

    samples: tuple[GpuSample, ...]
    uses: tuple[AttemptUse, ...] = ()


@dataclass(frozen=True)
class HealthReport:
    """A change of an attempt's health: the health check passes, or has failed so often that the attempt
    counts as unhealthy.
    """

    job: int
    attempt: int
    healthy: bool
    why: str = ""


@dataclass(frozen=True)
class GpuProcess:
    """A process on a GPU; `job` is None if no job started it."""

    uuid: str
    pid: int
    user: str
    command: str
    memory_mib: int = 0
    job: Optional[int] = None


@dataclass(frozen=True)
class GpuProcesses:
    """All processes on the GPUs of a node. The agent sends the list when it has changed noticeably."""

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
    """The answer to CheckGpu. `ok` is True if the GPU is healthy; otherwise `why` is the reason."""

    uuid: str
    ok: bool
    why: str = ""
    occupied: bool = False
    """True if the only problem is a process that no job started on the GPU. The GPU itself is then not
    faulty.
    """


@dataclass(frozen=True)
class GpuReset:
    """The answer to ResetGpu. `ok` is True if the GPU was reset; otherwise `why` is the reason."""

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
class ShellOutput:
    """Output of a `corral exec` command, which runs in the allocation of a job. `data` has the output as
    base64.
    """

    request: int
    data: str
    stream: str = "stdout"


@dataclass(frozen=True)
class ShellEnded:
    """The end of a `corral exec` command. `error` is the reason if the command could not start or Corral
    ended it.
    """

    request: int
    code: Optional[int] = None
    signal: Optional[int] = None
    error: str = ""


@dataclass(frozen=True)
class Pong:
    """The answer to Ping. `clock` is the host's clock, in seconds since boot."""

    beat: int
    clock: Optional[float] = None


# --- controller to agent ---


@dataclass(frozen=True)
class GpuHold:
    """A GPU, or a part of a GPU, that is allocated to an attempt. `milli` is the part in thousandths of a
    GPU.
    """

    uuid: str
    milli: int


@dataclass(frozen=True)
class Start:
    """Run an attempt. A repeated Start has no effect. If the agent has received a higher attempt number of
    the same job before, it refuses the Start.

    `checkpoint` was saved by an earlier attempt of the job. The fields after `checkpoint` have the meaning
    that they have in JobSpec, except these: `tasks` is the number of processes on this node; `rank` is the
    index of this node, from 0, among the `nodes` of the job; with `barrier` the agent prepares the attempt,
    reports that it is ready and waits for the message Go; `output` and `error` are paths without patterns;
    with `append` output is added to existing files.
    """

    job: int
    attempt: int
    command: tuple[str, ...]
    user: str
    cpu_milli: int
    memory_mib: int
    name: str = ""
    gpus: tuple[GpuHold, ...] = ()
    numa: tuple[int, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: Optional[str] = None
    time_limit_s: Optional[float] = None
    grace_s: float = 10.0
    lease_s: Optional[float] = None
    checkpoint: Optional[Checkpoint] = None
    checkpoint_command: tuple[str, ...] = ()
    checkpoint_signal: str = ""
    checkpoint_dir: Optional[str] = None
    checkpoint_keep: int = 0
    warn_signal: str = ""
    warn_s: float = 0.0
    tasks: int = 1
    rank: int = 0
    nodes: int = 1
    barrier: bool = False
    cpu_limit_milli: Optional[int] = None
    memory_limit_mib: Optional[int] = None
    best_effort: bool = False
    image: str = ""
    mounts: tuple[str, ...] = ()
    scratch_mib: int = 0
    umask: Optional[int] = None
    output: str = ""
    error: str = ""
    append: bool = False
    merge_output: bool = False
    health: Optional[HealthCheck] = None

    @property
    def most_cpu_milli(self) -> Optional[int]:
        """Return the limit on the CPU use of the attempt, in thousandths of a core; None means no limit."""
        return None if self.best_effort else self.cpu_limit_milli or self.cpu_milli

    @property
    def most_memory_mib(self) -> Optional[int]:
        """Return the limit on the memory of the attempt, in MiB; None means no limit."""
        return None if self.best_effort else self.memory_limit_mib or self.memory_mib


@dataclass(frozen=True)
class Go:
    """Start the program of the attempt, because all members of its gang are ready. A repeated Go has no
    effect.
    """

    job: int
    attempt: int


@dataclass(frozen=True)
class Stop:
    """End an attempt: request a checkpoint, send SIGTERM, wait `grace_s` seconds, send SIGKILL.

    `checkpoint_s` is how many seconds the checkpoint may take; 0 means no checkpoint. If the agent has no
    record of the attempt, it reports the attempt as ended, with the reason `why`.
    """

    job: int
    attempt: int
    grace_s: float = 10.0
    why: str = "cancelled"
    checkpoint_s: float = 0.0


@dataclass(frozen=True)
class TimeLimit:
    """Extend the time limit of a running attempt to `time_limit_s` seconds from the start of the attempt."""

    job: int
    attempt: int
    time_limit_s: float


@dataclass(frozen=True)
class Signal:
    """Send a signal to those processes of an attempt that have a handler for this signal. Other processes do
    not get the signal, because the signal would end them.
    """

    job: int
    attempt: int
    signal: str


@dataclass(frozen=True)
class Note:
    """Append a message for the user to the stderr of an attempt, and show it on the open terminals of the
    attempt.
    """

    job: int
    attempt: int
    text: str


@dataclass(frozen=True)
class Settle:
    """The controller has stored the end of this attempt, so the agent no longer reports it. The logs stay
    until log retention deletes them.
    """

    job: int
    attempt: int


@dataclass(frozen=True)
class ReadLog:
    """Send the log of an attempt from byte `offset` on. A negative offset counts from the end of the log.

    With `follow` the agent also sends new output until the attempt has ended.
    """

    request: int
    job: int
    attempt: int
    stream: str = "stdout"
    offset: int = 0
    follow: bool = False


@dataclass(frozen=True)
class StopReading:
    """Send no more of the log for the ReadLog with this number: the client that reads the log has closed its
    connection.
    """

    request: int


@dataclass(frozen=True)
class CheckGpu:
    """Check a faulty GPU in `after_s` seconds and answer with GpuChecked. A later CheckGpu for the same GPU
    cancels this check.
    """

    uuid: str
    after_s: float = 0.0


@dataclass(frozen=True)
class ResetGpu:
    """Reset an unused GPU in `after_s` seconds by running `command` with the GPU's UUID as last argument. A
    later CheckGpu for the same GPU cancels the reset.
    """

    uuid: str
    command: tuple[str, ...]
    after_s: float = 0.0


@dataclass(frozen=True)
class OpenShell:
    """Run a command of `corral exec` in the allocation of a running attempt. If `command` is empty, run the
    user's login shell.
    """

    request: int
    job: int
    attempt: int
    command: tuple[str, ...] = ()
    tty: bool = False
    rows: int = 24
    columns: int = 80
    term: str = ""


@dataclass(frozen=True)
class ShellInput:
    """Input for a `corral exec` command, as base64. If `end` is True, the command's stdin is closed."""

    request: int
    data: str = ""
    end: bool = False


@dataclass(frozen=True)
class ShellTaken:
    """The client has read `size` bytes of a command's output, so the agent may send `size` more bytes."""

    request: int
    size: int


@dataclass(frozen=True)
class ResizeShell:
    """The user has changed the size of the terminal window in which a command runs."""

    request: int
    rows: int
    columns: int


@dataclass(frozen=True)
class CloseShell:
    """End a `corral exec` command, because its client has closed the connection."""

    request: int


@dataclass(frozen=True)
class Ping:
    """Answer with Pong, and renew the leases of all attempts on the host.

    `heard` is the time at which the controller last received a message from this agent, by the host's clock,
    in seconds since boot. Leases are renewed from that time and not from the arrival of this Ping, because
    the network may delay the Ping for minutes.
    """

    beat: int
    heard: Optional[float] = None


@dataclass(frozen=True)
class Leave:
    """Close the connection and exit. Running attempts continue without the agent."""


AgentFrame = Union[
    Hello,
    Report,
    GpuReport,
    GpuProcesses,
    GpuTrouble,
    GpuChecked,
    GpuReset,
    HealthReport,
    LogChunk,
    Pong,
    ShellOutput,
    ShellEnded,
]
ControllerFrame = Union[
    Start,
    Go,
    Stop,
    TimeLimit,
    Signal,
    Note,
    Settle,
    ReadLog,
    StopReading,
    CheckGpu,
    ResetGpu,
    Ping,
    Leave,
    OpenShell,
    ShellInput,
    ShellTaken,
    ResizeShell,
    CloseShell,
]
Frame = Union[AgentFrame, ControllerFrame]

_SHORT_NAMES = {"GpuReport": "gpus", "LogChunk": "log"}
"""The kinds of messages for which the kind is not the class name in snake case."""
_NAMES = {
    kind: _SHORT_NAMES.get(kind.__name__) or re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
    for kind in (*get_args(AgentFrame), *get_args(ControllerFrame))
}
_KINDS: dict[str, type[Any]] = {name: kind for kind, name in _NAMES.items()}


def _whole(digits: str) -> int:
    number = int(digits)
    if abs(number) > MOST:
        raise ValueError(f"a number of {len(digits)} digits")
    return number


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is too large a number")
    return number


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not a number")


_JSON = json.JSONDecoder(parse_int=_whole, parse_float=_finite, parse_constant=_refuse)


def pack(frame: Frame) -> bytes:
    """Return the message as one line that ends with a newline. File names that are not valid UTF-8 are
    preserved.
    """
    return (dumps({"t": _NAMES[type(frame)], **encode(frame)}) + "\n").encode("utf-8", "surrogatepass")


def unpack(line: bytes) -> Frame:
    """Return the message that the line contains. Raise Malformed if the kind of message is unknown, or if a
    field is unknown or has a wrong value.
    """
    try:
        data = _JSON.decode(line.decode("utf-8", "surrogatepass"))
        if b"\\ud" in line.lower():
            # Encode the data to raise an error for half a surrogate pair, which databases cannot store.
            dumps(data).encode()
    except (ValueError, RecursionError) as error:
        raise Malformed("frame", f"not JSON: {error}") from None
    name = data.pop("t", None) if isinstance(data, dict) else None
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise Malformed("frame", "unknown kind of frame")
    frame: Frame = decode(kind, data)
    return frame
