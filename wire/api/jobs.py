"""Jobs: submitting, showing and changing them, one by one or many at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Optional

from wire.agent.frames import Checkpoint, GpuUse
from wire.api.nodes import GpuShare
from wire.api.problem import Problem
from wire.api.reasons import Why
from wire.api.reports import Foreseen
from wire.job.spec import JobSpec
from wire.names import JobState, Reason


@dataclass(frozen=True)
class SubmitRequest:
    """A job to submit. With the same `key` from the same user a retry returns the same job."""

    spec: JobSpec
    key: str = ""
    as_user: str = ""


@dataclass(frozen=True)
class Submitted:
    """The ids of a submitted job or array, in array order; `label` is its name for people."""

    ids: tuple[int, ...]
    label: str


@dataclass(frozen=True)
class JobChange:
    """New values of fields of a JobSpec; null: the default."""

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
    """The id of the opened shell; only its opener may use it."""

    shell: str


@dataclass(frozen=True)
class ShellSaid:
    """Part of the output, base64; or the end: exit code, signal, and why it could not start or was ended."""

    stream: str = ""
    data: str = ""
    end: bool = False
    code: Optional[int] = None
    signal: Optional[int] = None
    error: str = ""


@dataclass(frozen=True)
class ShellGiven:
    """Input, base64; the end of the input; or a new size of the window."""

    data: str = ""
    end: bool = False
    rows: int = 0
    columns: int = 0


@dataclass(frozen=True)
class Held:
    """The allocation of an attempt on one node."""

    node: str
    cpu_milli: int
    memory_mib: int
    gpus: tuple[GpuShare, ...] = ()
    scratch_mib: int = 0


@dataclass(frozen=True)
class JobView:
    """A job, as all users see it."""

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
    """GPU-hours of ended attempts."""
    use: Optional[GpuUse] = None
    """GPU usage of the last attempt; so far, if it runs. None if nothing was measured."""
    idle_since: Optional[float] = None
    """Since when its GPUs are idle, if that is long enough to be reported."""
    silent: tuple[str, ...] = ()
    """Silent nodes of the running job; whether it still runs there is unknown."""
    profile: str = ""
    """The scheduler profile of the job; empty on a cluster without profiles."""


@dataclass(frozen=True)
class JobsOrder:
    """One action on many jobs: cancel, hold, release, preempt, requeue or set.

    `jobs` are words such as 7, 7_3, 7_[0-9], 1-3, last or all; `mine` leaves out jobs of other users, and
    alone means all jobs of the caller. `changes` are for set, as in JobChange; with `stay_held` a preempted
    job stays in the queue until released; with `only_tell` nothing is changed.
    """

    action: str
    jobs: tuple[str, ...] = ()
    mine: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)
    stay_held: bool = False
    only_tell: bool = False


@dataclass(frozen=True)
class JobRefused:
    """A job, or a word that names no job, for which an order was refused, and why."""

    job: str
    problem: Problem


@dataclass(frozen=True)
class JobsAnswer:
    """The jobs for which an order was carried out, as they are now, and the refusals."""

    done: tuple[JobView, ...]
    refused: tuple[JobRefused, ...] = ()


@dataclass(frozen=True)
class PreemptAction:
    """Body of preempt; with `hold` the job stays in the queue until released."""

    hold: bool = False


@dataclass(frozen=True)
class Preempted:
    """A preempted attempt: the reason, and the lost GPU-hours."""

    at: float
    attempt: int
    by: str
    gpu_hours: float


@dataclass(frozen=True)
class Moved:
    """A move of a running job to other nodes, and its result."""

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
    """Estimated cost of the move, in GPU-hours."""
    for_job: Optional[int] = None
    node: str = ""
    done_at: Optional[float] = None
    """When the job ran on the new nodes. With neither this nor `undone` the move is under way."""
    undone: str = ""


@dataclass(frozen=True)
class JobDetail:
    """A job with its request and the reason for its state; `spec.env` only for its owner and operators."""

    job: JobView
    spec: JobSpec
    why: Why
    checkpoint: Optional[Checkpoint] = None
    preemptions: tuple[Preempted, ...] = ()
    predicted_s: Optional[float] = None
    """Predicted run time from similar jobs, in seconds; of a started job, the prediction at its start."""
    planned_s: Optional[float] = None
    """Run time of a running job that plans assume, in seconds; None: its time limit."""
    foreseen: tuple[Foreseen, ...] = ()
    """Start times that were forecast while the job waited."""
    moves: tuple[Moved, ...] = ()


@dataclass(frozen=True)
class JobList:
    """Jobs by id, with the journal position of this answer; `next` is the `after` of the next page."""

    jobs: tuple[JobView, ...]
    seq: int
    total: int
    next: Optional[int] = None
