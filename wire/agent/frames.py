"""Messages between controller and agent: one JSON object per line, with its kind under "t"."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Union, get_args

from wire.codec import Malformed, decode, dumps, encode
from wire.names import GpuHealth, TroubleKind

PROTOCOL = 1
MAX_FRAME = 64 * 1024 * 1024
MOST = 1 << 53
"""The largest whole number in a frame, so that sums fit into columns and every JSON reader agrees."""


@dataclass(frozen=True)
class GpuFacts:
    """One GPU as the host reports it; `links` are the indices it reaches over NVLink.

    A MIG instance is reported like a GPU, with a UUID and memory of its own and the profile in `mig`; the
    GPU that it is a part of is not. `compute` is the compute capability, such as 9.0; "" if unknown.
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
    """The driver's number if it differs from `index`, which counts MIG instances as GPUs."""

    @property
    def number(self) -> str:
        """The GPU as the driver numbers it: `3`, or `2:1` for the second MIG instance of GPU 2."""
        return self.label or str(self.index)


@dataclass(frozen=True)
class NumaFacts:
    """One NUMA node: its CPUs as the kernel lists them, and its distance to each NUMA node."""

    node: int
    cpus: str = ""
    memory_mib: int = 0
    distances: tuple[int, ...] = ()


@dataclass(frozen=True)
class NodeFacts:
    """Resources of a host; only a new Hello changes them. `storage_mib` is local disk for scratch."""

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
    """How jobs run on the host, as text by topic: their user, how limits are enforced, and so on."""
    runtime: str = ""
    """The container runtime and its version; empty if there is none."""
    image_gpus: str = ""
    """Why containers get no GPUs on this host; empty if they get them."""


@dataclass(frozen=True)
class GpuUse:
    """GPU usage of an attempt: utilisation in percent, peak memory, energy."""

    mean: float = 0.0
    p95: int = 0
    peak_mib: int = 0
    wh: float = 0.0


@dataclass(frozen=True)
class Usage:
    """Usage of one attempt on one node."""

    cpu_s: float = 0.0
    max_rss_mib: int = 0
    gpu: Optional[GpuUse] = None


@dataclass(frozen=True)
class Checkpoint:
    """The newest checkpoint of an attempt: a file or a directory, its size, and its time of change."""

    path: str
    size: int = 0
    at: float = 0.0


@dataclass(frozen=True)
class AttemptStatus:
    """One attempt from the spool: `pid` after its start, `ended_at` after its end.

    `code` is the exit code, `signal` the signal that killed it; `why` is set if the program did not end by
    itself (time_limit, cancelled, launch_failed: …, supervisor_lost).
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
    """True while the attempt waits at the barrier of its gang for Go."""

    @property
    def ran(self) -> bool:
        """True if a process has run, also if its start was not reported."""
        return self.started_at is not None or self.code is not None or self.signal is not None


# --- agent to controller ---


@dataclass(frozen=True)
class Hello:
    """First frame of every connection: the node's name and its full state."""

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
    """One attempt has started or ended. Repeated after every Hello until it is settled."""

    status: AttemptStatus


@dataclass(frozen=True)
class GpuSample:
    """A reading of one GPU; not journaled. `throttle` lists what lowers its clocks, as text."""

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
    """True if a row of memory will be remapped at the next reset of the GPU."""


@dataclass(frozen=True)
class AttemptUse:
    """GPU usage of a running attempt on this node so far."""

    job: int
    attempt: int
    use: GpuUse


@dataclass(frozen=True)
class GpuReport:
    """Readings that changed since the last report.

    At intervals also the usage so far of every running attempt on the node; otherwise `uses` is empty.
    """

    samples: tuple[GpuSample, ...]
    uses: tuple[AttemptUse, ...] = ()


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
    """Every process on the GPUs of a node; sent again when that changes."""

    processes: tuple[GpuProcess, ...]


@dataclass(frozen=True)
class GpuTrouble:
    """A GPU is faulty. The controller decides what to do."""

    uuid: str
    kind: TroubleKind
    why: str = ""
    xid: Optional[int] = None


@dataclass(frozen=True)
class GpuChecked:
    """Answer to CheckGpu: whether the GPU is healthy, and if not, why."""

    uuid: str
    ok: bool
    why: str = ""
    occupied: bool = False
    """True if the only problem is a process that no job started, which is no fault of the GPU."""


@dataclass(frozen=True)
class GpuReset:
    """Answer to ResetGpu: whether the GPU was reset, and if not, why."""

    uuid: str
    ok: bool
    why: str = ""


@dataclass(frozen=True)
class LogChunk:
    """Part of an answer to ReadLog; `data` is base64 and begins at `offset`, `end` closes the answer."""

    request: int
    data: str = ""
    end: bool = False
    error: str = ""
    offset: int = 0


@dataclass(frozen=True)
class ShellOutput:
    """Output of a command in a job's allocation; `data` is base64."""

    request: int
    data: str
    stream: str = "stdout"


@dataclass(frozen=True)
class ShellEnded:
    """The command has ended. `error`: why it could not start, or why it was ended before its time."""

    request: int
    code: Optional[int] = None
    signal: Optional[int] = None
    error: str = ""


@dataclass(frozen=True)
class Pong:
    """Answer to Ping; `clock` is that of the host, as in Hello: seconds since it booted."""

    beat: int
    clock: Optional[float] = None


# --- controller to agent ---


@dataclass(frozen=True)
class GpuHold:
    """A GPU, or `milli` thousandths of one, held by an allocation."""

    uuid: str
    milli: int


@dataclass(frozen=True)
class Start:
    """Run one attempt. A repeat has no effect; an attempt older than one already seen is refused.

    `checkpoint` was saved by an earlier attempt of the job; the fields after it are those of the JobSpec.
    `tasks` processes run on this node, which has the number `rank` among the job's `nodes`. With `barrier`
    the agent prepares the attempt, reports it and waits for Go. `output` and `error` are paths without
    patterns; with `append` their content stays.
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

    @property
    def most_cpu_milli(self) -> Optional[int]:
        """The most CPU that the attempt may use, in thousandths of a core; None: all of the node."""
        return None if self.best_effort else self.cpu_limit_milli or self.cpu_milli

    @property
    def most_memory_mib(self) -> Optional[int]:
        """The most memory that the attempt may use, in MiB; None: all of the node."""
        return None if self.best_effort else self.memory_limit_mib or self.memory_mib


@dataclass(frozen=True)
class Go:
    """Start: all members of the gang are ready. A repeat has no effect."""

    job: int
    attempt: int


@dataclass(frozen=True)
class Stop:
    """End an attempt: checkpoint, SIGTERM, grace, SIGKILL. An unknown one is reported as ended with `why`.

    `checkpoint_s` is the longest time for a checkpoint before SIGTERM; 0: no checkpoint.
    """

    job: int
    attempt: int
    grace_s: float = 10.0
    why: str = "cancelled"
    checkpoint_s: float = 0.0


@dataclass(frozen=True)
class Signal:
    """Send a signal to the processes of an attempt that have a handler for it; it would end the others."""

    job: int
    attempt: int
    signal: str


@dataclass(frozen=True)
class Note:
    """Write a message for the user into the stderr of an attempt."""

    job: int
    attempt: int
    text: str


@dataclass(frozen=True)
class Settle:
    """The end of this attempt is stored: stop reporting it. Logs stay until retention deletes them."""

    job: int
    attempt: int


@dataclass(frozen=True)
class ReadLog:
    """Send a log from `offset`; with `follow`, until the attempt has ended. Negative offset: from the end."""

    request: int
    job: int
    attempt: int
    stream: str = "stdout"
    offset: int = 0
    follow: bool = False


@dataclass(frozen=True)
class StopReading:
    """Stop answering this ReadLog, because the reader has left."""

    request: int


@dataclass(frozen=True)
class CheckGpu:
    """Check a faulty GPU after `after_s` seconds, and answer with GpuChecked; a later order replaces it."""

    uuid: str
    after_s: float = 0.0


@dataclass(frozen=True)
class ResetGpu:
    """Reset an unused GPU with this command and its UUID; a later CheckGpu cancels the reset."""

    uuid: str
    command: tuple[str, ...]
    after_s: float = 0.0


@dataclass(frozen=True)
class OpenShell:
    """Run a command in the allocation of a running attempt; without a command, its user's login shell."""

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
    """Input for a command, base64; `end` closes the input."""

    request: int
    data: str = ""
    end: bool = False


@dataclass(frozen=True)
class ShellTaken:
    """This number of bytes of output has been read; the command may write as many again."""

    request: int
    size: int


@dataclass(frozen=True)
class ResizeShell:
    """The window of a command has a new size."""

    request: int
    rows: int
    columns: int


@dataclass(frozen=True)
class CloseShell:
    """End the command, because its user has left."""

    request: int


@dataclass(frozen=True)
class Ping:
    """Ask for a Pong. Renews leases as of `heard`, the host's clock in its last frame.

    That time counts, not the arrival of this frame, because a network may delay it for minutes.
    """

    beat: int
    heard: Optional[float] = None


@dataclass(frozen=True)
class Leave:
    """Close the connection and exit; running attempts continue."""


AgentFrame = Union[
    Hello,
    Report,
    GpuReport,
    GpuProcesses,
    GpuTrouble,
    GpuChecked,
    GpuReset,
    LogChunk,
    Pong,
    ShellOutput,
    ShellEnded,
]
ControllerFrame = Union[
    Start,
    Go,
    Stop,
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
"""Classes whose kind is not their name in snake case."""
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
    """The frame as one line with its newline; names that are not UTF-8 are preserved."""
    return (dumps({"t": _NAMES[type(frame)], **encode(frame)}) + "\n").encode("utf-8", "surrogatepass")


def unpack(line: bytes) -> Frame:
    """The frame of one line. Raises Malformed if it is not a known frame."""
    try:
        data = _JSON.decode(line.decode("utf-8", "surrogatepass"))
        if b"\\ud" in line.lower():
            dumps(data).encode()  # because JSON allows half a surrogate pair, which cannot be stored
    except (ValueError, RecursionError) as error:
        raise Malformed("frame", f"not JSON: {error}") from None
    name = data.pop("t", None) if isinstance(data, dict) else None
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise Malformed("frame", "unknown kind of frame")
    frame: Frame = decode(kind, data)
    return frame
