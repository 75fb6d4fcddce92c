"""API bodies for jobs: to submit, show and change one job or many."""

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
    """A job to submit. A repeated request of the same user with the same `key` returns the same job."""

    spec: JobSpec
    key: str = ""
    as_user: str = ""


@dataclass(frozen=True)
class Submitted:
    """The id of the submitted job, or the ids of all array elements by index. `label` is the id for users."""

    ids: tuple[int, ...]
    label: str


@dataclass(frozen=True)
class JobChange:
    """New values for fields of a JobSpec, by field name. null sets the default."""

    changes: Mapping[str, Any]


@dataclass(frozen=True)
class SignalRequest:
    """A signal such as USR1 to send to the processes of a running job that have a handler for it."""

    signal: str


@dataclass(frozen=True)
class ShellRequest:
    """Run a command, or a login shell if `command` is empty, in a running job's allocation. `node` selects
    the node of a gang.
    """

    command: tuple[str, ...] = ()
    tty: bool = False
    rows: int = 24
    columns: int = 80
    term: str = ""
    node: str = ""


@dataclass(frozen=True)
class ShellOpened:
    """The id of the opened shell. Only the user that opened it may use it."""

    shell: str


@dataclass(frozen=True)
class ShellSaid:
    """A part of the output of a command, as base64; or, with `end`, its exit code or signal. `error` is the
    reason if the command could not start or Corral ended it.
    """

    stream: str = ""
    data: str = ""
    end: bool = False
    code: Optional[int] = None
    signal: Optional[int] = None
    error: str = ""


@dataclass(frozen=True)
class ShellGiven:
    """Input for a command, as base64; or the end of the input; or a new size of the terminal window."""

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
    """A job with the fields that all users may see."""

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
    """GPU-hours of the ended attempts of the job."""
    use: Optional[GpuUse] = None
    """GPU usage of the last attempt, until now if it runs. None if there is no measurement."""
    idle_since: Optional[float] = None
    """The time since which the job's GPUs are idle; None if they are busy or not idle for long enough."""
    silent: tuple[str, ...] = ()
    """Nodes of the running job that do not report; it is unknown whether the job still runs on them."""
    profile: str = ""
    """The scheduler profile of the job; empty on a cluster without profiles."""


@dataclass(frozen=True)
class JobsOrder:
    """One action on many jobs: cancel, hold, release, preempt, requeue or set.

    `jobs` are words such as 7, 7_3, 7_[0-9], 1-3, last or all. `mine` leaves out jobs of other users; with
    `mine` and no `jobs` the order is for all jobs of the caller. `changes` are used by set, as in JobChange.
    With `stay_held` a preempted job stays in the queue until released. With `only_tell` nothing is changed.
    """

    action: str
    jobs: tuple[str, ...] = ()
    mine: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)
    stay_held: bool = False
    only_tell: bool = False


@dataclass(frozen=True)
class JobRefused:
    """A job, or a word that matches no job, for which the order was refused, and the reason."""

    job: str
    problem: Problem


@dataclass(frozen=True)
class JobsAnswer:
    """The jobs for which the order was carried out, in their new state, and the refusals."""

    done: tuple[JobView, ...]
    refused: tuple[JobRefused, ...] = ()


@dataclass(frozen=True)
class PreemptAction:
    """Body of preempt; with `hold` the job stays in the queue until released."""

    hold: bool = False


@dataclass(frozen=True)
class Preempted:
    """The preemption of one attempt: the job or policy that caused it, and the GPU-hours that were lost."""

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
    """The time at which the job ran on the new nodes. If this and `undone` are empty, the move is under
    way."""
    undone: str = ""


@dataclass(frozen=True)
class JobDetail:
    """A job with its request and the reason for its state. Only its owner and operators get `spec.env`."""

    job: JobView
    spec: JobSpec
    why: Why
    checkpoint: Optional[Checkpoint] = None
    preemptions: tuple[Preempted, ...] = ()
    predicted_s: Optional[float] = None
    """Run time predicted from similar jobs, in seconds. For a started job, the prediction at its start."""
    planned_s: Optional[float] = None
    """The run time that plans assume for a running job, in seconds; None: its time limit."""
    foreseen: tuple[Foreseen, ...] = ()
    """Start times that were forecast while the job waited."""
    moves: tuple[Moved, ...] = ()


@dataclass(frozen=True)
class JobList:
    """One page of jobs by id. `seq` is the number of the newest journal entry in this answer; `next` is the
    `after` of the next page.
    """

    jobs: tuple[JobView, ...]
    seq: int
    total: int
    next: Optional[int] = None
