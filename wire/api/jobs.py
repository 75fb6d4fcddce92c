"""Jobs: submitted, shown, changed and made room for, one by one and many at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Optional

from wire.api.nodes import GpuShare
from wire.api.problem import Problem
from wire.api.reasons import Why
from wire.api.reports import Foreseen
from wire.frames import Checkpoint, GpuUse
from wire.spec import JobSpec
from wire.words import JobState, Reason


@dataclass(frozen=True)
class SubmitRequest:
    """`key` makes a retry harmless: the same key from the same user is the same job."""

    spec: JobSpec
    key: str = ""
    as_user: str = ""


@dataclass(frozen=True)
class Submitted:
    """The ids of a submit, in array order; `label` is how people name it."""

    ids: tuple[int, ...]
    label: str


@dataclass(frozen=True)
class JobChange:
    """What a job is to ask for from now on: fields of its JobSpec; null: as if it had been left out."""

    changes: Mapping[str, Any]


@dataclass(frozen=True)
class SignalRequest:
    """A signal such as USR1, for the processes of a running job that have a handler for it."""

    signal: str


@dataclass(frozen=True)
class ShellRequest:
    """Run a command in a running job's allocation; without one, a login shell. `node` is for gangs."""

    command: tuple[str, ...] = ()
    tty: bool = False
    rows: int = 24
    columns: int = 80
    term: str = ""
    node: str = ""


@dataclass(frozen=True)
class ShellOpened:
    """Known by this to whoever opened it, and to nobody else."""

    shell: str


@dataclass(frozen=True)
class ShellSaid:
    """Part of what it writes, base64; or its end: exit code, signal, or why there was none."""

    stream: str = ""
    data: str = ""
    end: bool = False
    code: Optional[int] = None
    signal: Optional[int] = None
    error: str = ""


@dataclass(frozen=True)
class ShellGiven:
    """Input, base64; the end of it; or another size of the window."""

    data: str = ""
    end: bool = False
    rows: int = 0
    columns: int = 0


@dataclass(frozen=True)
class Held:
    """What an attempt holds on one node; GPUs as (index, milli)."""

    node: str
    cpu_milli: int
    memory_mib: int
    gpus: tuple[GpuShare, ...] = ()
    scratch_mib: int = 0


@dataclass(frozen=True)
class JobView:
    """A job as everybody sees it."""

    id: int
    label: str
    name: str
    user: str
    project: str
    queue: str
    state: JobState
    reason: Reason
    detail: str
    priority: int
    gpus: float
    nodes: int
    cpu_milli: int
    memory_mib: int
    attempt: int
    submitted_at: float
    started_at: Optional[float] = None
    ended_at: Optional[float] = None
    time_limit_s: Optional[float] = None
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    array: Optional[int] = None
    index: Optional[int] = None
    quality: Optional[int] = None
    restarts: int = 0
    held: tuple[Held, ...] = ()
    preempted: int = 0
    gpu_hours: float = 0.0
    """Of attempts that are over."""
    use: Optional[GpuUse] = None
    idle_since: Optional[float] = None
    """Since when its GPUs do nothing, if that is long enough to be told."""
    profile: str = ""
    """Who decides when and where it runs; empty on a cluster without profiles."""


@dataclass(frozen=True)
class JobsOrder:
    """One action on many jobs: cancel, hold, release, preempt or set.

    `jobs` are words such as 7, 7_3, 7_[0-9], 1-3, last or all; `mine` leaves out those of others, and alone
    means all of one's own. `changes` are for set, as in JobChange; with `stay_held` what is preempted stays
    in the queue until released; with `only_tell` nothing is done.
    """

    action: str
    jobs: tuple[str, ...] = ()
    mine: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)
    stay_held: bool = False
    only_tell: bool = False


@dataclass(frozen=True)
class JobRefused:
    """A job, or a word that means none, for which an order was not carried out, and why."""

    job: str
    problem: Problem


@dataclass(frozen=True)
class JobsAnswer:
    """The jobs for which an order was carried out, as they are now, and the others."""

    done: tuple[JobView, ...]
    refused: tuple[JobRefused, ...] = ()


@dataclass(frozen=True)
class PreemptAction:
    """Body of preempt; with `hold` the job stays in the queue until released."""

    hold: bool = False


@dataclass(frozen=True)
class Preempted:
    """An attempt that was ended so that others could run: by whom, and what that lost."""

    at: float
    attempt: int
    by: str
    gpu_hours: float


@dataclass(frozen=True)
class Moved:
    """A job that was told to go on elsewhere, and what came of it."""

    job: int
    label: str
    name: str
    user: str
    proposal: str
    kind: str
    at: float
    attempt: int
    origin: tuple[str, ...]
    to: tuple[str, ...]
    gpu_hours: float
    """What that was to cost."""
    for_job: Optional[int] = None
    node: str = ""
    done_at: Optional[float] = None
    """When it ran there; neither this nor `undone`: it is under way."""
    undone: str = ""


@dataclass(frozen=True)
class JobDetail:
    """A job with what it asked for and why it is where it is; `spec.env` only for owner and operators."""

    job: JobView
    spec: JobSpec
    why: Why
    checkpoint: Optional[Checkpoint] = None
    preemptions: tuple[Preempted, ...] = ()
    predicted_s: Optional[float] = None
    """How long it is likely to run, by what is known of its like; or was, when it got its place."""
    planned_s: Optional[float] = None
    """How long plans count on a running job; None: as long as it may run."""
    foreseen: tuple[Foreseen, ...] = ()
    """When it was to start, as was said while it waited."""
    moves: tuple[Moved, ...] = ()


@dataclass(frozen=True)
class JobList:
    """Jobs by id, with the journal position they show; `next` continues a long listing."""

    jobs: tuple[JobView, ...]
    seq: int
    total: int
    next: Optional[int] = None
