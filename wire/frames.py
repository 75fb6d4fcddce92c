"""What controller and agent say to each other: one JSON object a line, its kind under "t"."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Union

from wire.codec import Malformed, decode, dumps, encode
from wire.words import GpuHealth, TroubleKind

PROTOCOL = 1
MAX_FRAME = 64 * 1024 * 1024
MOST = 1 << 53
"""No whole number in a frame is larger: sums of them fit where they are kept, and JSON readers agree."""


@dataclass(frozen=True)
class GpuFacts:
    """One GPU as the host reports it; `links` are the indices it reaches over NVLink.

    A MIG instance is reported like a GPU, with a UUID and memory of its own and the profile in `mig`; the
    GPU it is cut from is not. `compute` is the compute capability, such as 9.0; "" where nobody knows.
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


@dataclass(frozen=True)
class NumaFacts:
    """One NUMA node: its CPUs as the kernel lists them, and how far each NUMA node is from it."""

    node: int
    cpus: str = ""
    memory_mib: int = 0
    distances: tuple[int, ...] = ()


@dataclass(frozen=True)
class NodeFacts:
    """What a host has; changes only by a new hello. `storage_mib` is local disk for jobs' scratch."""

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
    runtime: str = ""
    """How jobs are run there, in words by topic: as which user, held to their limits by what, and so on."""


@dataclass(frozen=True)
class GpuUse:
    """What an attempt made of its GPUs: utilisation in percent, the most memory at once, energy."""

    mean: float = 0.0
    p95: int = 0
    peak_mib: int = 0
    wh: float = 0.0


@dataclass(frozen=True)
class Usage:
    """What one attempt used on one node."""

    cpu_s: float = 0.0
    max_rss_mib: int = 0
    gpu: Optional[GpuUse] = None


@dataclass(frozen=True)
class Checkpoint:
    """The newest that an attempt saved: a file or a directory, its size, and when it was last changed."""

    path: str
    size: int = 0
    at: float = 0.0


@dataclass(frozen=True)
class AttemptStatus:
    """One attempt as its spool knows it: `pid` once started, `ended_at` once over.

    `code` is the exit code, `signal` what killed it; `why` names an end that is not the program's own
    (time_limit, cancelled, launch_failed: …, supervisor_lost).
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
    """It waits at the barrier of its gang for Go."""

    @property
    def ran(self) -> bool:
        """Was there a process? Whatever returned something has run, also where nobody saw it start."""
        return self.started_at is not None or self.code is not None or self.signal is not None


# --- agent to controller ---


@dataclass(frozen=True)
class Hello:
    """First frame of every connection: who, and the full state of the node."""

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
    """One attempt changed: started, or ended (repeated after every hello until settled)."""

    status: AttemptStatus


@dataclass(frozen=True)
class GpuSample:
    """A reading of one GPU; never journaled. `throttle` says in words what holds its clocks down."""

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


@dataclass(frozen=True)
class GpuReport:
    """Readings that changed since the last report."""

    samples: tuple[GpuSample, ...]


@dataclass(frozen=True)
class GpuProcess:
    """A process on a GPU; `job` is None if it came past the queue."""

    uuid: str
    pid: int
    user: str
    command: str
    memory_mib: int = 0
    job: Optional[int] = None


@dataclass(frozen=True)
class GpuProcesses:
    """Every process on the GPUs of a node, told anew when that changes."""

    processes: tuple[GpuProcess, ...]


@dataclass(frozen=True)
class GpuTrouble:
    """Something is wrong with a GPU; what follows from it is the controller's to decide."""

    uuid: str
    kind: TroubleKind
    why: str = ""
    xid: Optional[int] = None


@dataclass(frozen=True)
class GpuChecked:
    """Answer to CheckGpu: is the GPU well, and if not, why."""

    uuid: str
    ok: bool
    why: str = ""


@dataclass(frozen=True)
class GpuReset:
    """Answer to ResetGpu: was it reset, and if not, why."""

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
    """What a command in a job's allocation writes; `data` is base64."""

    request: int
    data: str
    stream: str = "stdout"


@dataclass(frozen=True)
class ShellEnded:
    """It is over, or with `error` never was."""

    request: int
    code: Optional[int] = None
    signal: Optional[int] = None
    error: str = ""


@dataclass(frozen=True)
class Pong:
    """Answer to Ping; `clock` is the host's own, as in Hello: seconds since it booted."""

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
    """Run one attempt. A repeat is harmless; an older attempt than one already seen is refused.

    `checkpoint` is what an earlier attempt of the job saved; the fields after it are those of the JobSpec.
    `tasks` processes run on this node, the one of number `rank` among the job's `nodes`. With `barrier` it
    makes everything ready, says so and waits for Go.
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

    @property
    def most_cpu_milli(self) -> Optional[int]:
        """How much CPU it may use at most; None: all there is."""
        return None if self.best_effort else self.cpu_limit_milli or self.cpu_milli

    @property
    def most_memory_mib(self) -> Optional[int]:
        """How much memory it may use at most; None: all there is."""
        return None if self.best_effort else self.memory_limit_mib or self.memory_mib


@dataclass(frozen=True)
class Go:
    """All members of the gang are ready: start. A repeat is harmless."""

    job: int
    attempt: int


@dataclass(frozen=True)
class Stop:
    """End an attempt: checkpoint, SIGTERM, grace, SIGKILL. An unknown one is reported as ended with `why`.

    `checkpoint_s` is how long saving may take before SIGTERM; 0: none is wanted.
    """

    job: int
    attempt: int
    grace_s: float = 10.0
    why: str = "cancelled"
    checkpoint_s: float = 0.0


@dataclass(frozen=True)
class Signal:
    """Tell those processes of an attempt that have a handler for this signal; the others would end."""

    job: int
    attempt: int
    signal: str


@dataclass(frozen=True)
class Note:
    """Tell the owner of an attempt something, in its stderr."""

    job: int
    attempt: int
    text: str


@dataclass(frozen=True)
class Settle:
    """The end of this attempt is on record: stop reporting it. Logs stay until retention takes them."""

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
    """Nobody reads the answer to this ReadLog any more."""

    request: int


@dataclass(frozen=True)
class CheckGpu:
    """Look at a sick GPU in so many seconds, and tell with GpuChecked; a later order takes its place."""

    uuid: str
    after_s: float = 0.0


@dataclass(frozen=True)
class ResetGpu:
    """Reset a GPU that nobody is on, by this command and its UUID; a later CheckGpu calls it off."""

    uuid: str
    command: tuple[str, ...]
    after_s: float = 0.0


@dataclass(frozen=True)
class OpenShell:
    """Run a command in the allocation of an attempt that runs; without one, its user's login shell."""

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
    """Input for a command, base64; `end`: there is no more."""

    request: int
    data: str = ""
    end: bool = False


@dataclass(frozen=True)
class ShellTaken:
    """So many bytes of its output have been read: it may write as many again."""

    request: int
    size: int


@dataclass(frozen=True)
class ResizeShell:
    """The window of a command has another size."""

    request: int
    rows: int
    columns: int


@dataclass(frozen=True)
class CloseShell:
    """Nobody is there any more: end it."""

    request: int


@dataclass(frozen=True)
class Ping:
    """Are you there? Renews leases as of `heard`: what the host's clock said when we heard of it last.

    That moment, and not the one when this arrives, counts: a network may hold it back for minutes.
    """

    beat: int
    heard: Optional[float] = None


@dataclass(frozen=True)
class Leave:
    """Close the connection and exit; running attempts go on."""


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

_KINDS: dict[str, type[Any]] = {
    "hello": Hello,
    "report": Report,
    "gpus": GpuReport,
    "gpu_processes": GpuProcesses,
    "gpu_trouble": GpuTrouble,
    "gpu_checked": GpuChecked,
    "gpu_reset": GpuReset,
    "log": LogChunk,
    "shell_output": ShellOutput,
    "shell_ended": ShellEnded,
    "open_shell": OpenShell,
    "shell_input": ShellInput,
    "shell_taken": ShellTaken,
    "resize_shell": ResizeShell,
    "close_shell": CloseShell,
    "pong": Pong,
    "start": Start,
    "go": Go,
    "stop": Stop,
    "signal": Signal,
    "note": Note,
    "settle": Settle,
    "read_log": ReadLog,
    "stop_reading": StopReading,
    "check_gpu": CheckGpu,
    "reset_gpu": ResetGpu,
    "ping": Ping,
    "leave": Leave,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


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
    """One line, newline included; names that are not UTF-8 pass through unharmed."""
    return (dumps({"t": _NAMES[type(frame)], **encode(frame)}) + "\n").encode("utf-8", "surrogatepass")


def unpack(line: bytes) -> Frame:
    """Read one line; raises Malformed for anything that is not a known frame."""
    try:
        data = _JSON.decode(line.decode("utf-8", "surrogatepass"))
        if b"\\ud" in line.lower():
            dumps(data).encode()  # half of a surrogate pair passes JSON, and nobody could write it down
    except (ValueError, RecursionError) as error:
        raise Malformed("frame", f"not JSON: {error}") from None
    name = data.pop("t", None) if isinstance(data, dict) else None
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise Malformed("frame", "unknown kind of frame")
    frame: Frame = decode(kind, data)
    return frame
