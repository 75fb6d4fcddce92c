"""API bodies to submit jobs, to show jobs, and to change one job or many jobs."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Mapping, Optional

from wire.agent.orders import SignalTo
from wire.agent.reports import Checkpoint, GpuUse, HostUse
from wire.api.nodes import GpuShare
from wire.api.problem import Problem
from wire.api.reasons import Why
from wire.api.service.reports import Foreseen
from wire.dataclass import dataclass
from wire.job.spec import JobSpec
from wire.job.steps import Step
from wire.names import JobState, Reason


@dataclass(frozen=True)
class SubmitRequest:
    """A job to submit. If the same user repeats a request with the same `key`, no second job is submitted,
    and the answer names the job of the first request.
    """

    spec: JobSpec
    key: str = ""
    as_user: str = ""


@dataclass(frozen=True)
class SbatchRequest:
    """A batch script to submit, with the options and arguments of the sbatch command and the variables of the
    shell.

    - `script` is the text of the script, with its #SBATCH lines. `arguments` are the words after the script.
    - `options` override the #SBATCH lines: long names without dashes and their values, such as
      {"partition": "gpu", "nodes": "2"}. The value of an option without a value is empty.
    - `environment` has the variables for the job, and SBATCH_* variables. `directory` is the directory in
      which the job runs.
    - If the same user repeats a request with the same `key`, no second job is submitted.
    """

    script: str
    name: str = "sbatch"
    arguments: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"
    key: str = ""


@dataclass(frozen=True)
class Submitted:
    """The id of the submitted job, or for an array the ids of all elements, in the order of their indices.
    `label` is the display id of the job or the array. `notes` are sentences for the user, for example that
    the job is in another project than the user requested.
    """

    ids: tuple[int, ...]
    label: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobChange:
    """New values for fields of a JobSpec, by field name. The value null sets a field to its default.

    `extend_s` adds seconds to the time limit of the job.
    """

    changes: Mapping[str, Any] = field(default_factory=dict)
    extend_s: float = 0.0


@dataclass(frozen=True)
class SignalRequest:
    """A signal, such as USR1, to send to processes of a running job. `to` selects the processes. Without
    `to`, all processes with a handler for the signal get the signal. With `step`, only the tasks of the step
    with this number get the signal. `cancel` records that the user has cancelled the step.
    """

    signal: str
    to: SignalTo = SignalTo.HANDLERS
    step: Optional[int] = None
    cancel: bool = False


@dataclass(frozen=True)
class LogMatch:
    """The answer to a search in the output of a job. `found` is the byte at which the match begins. `size` is
    the size of the output in bytes.

    If `found` is None, the search has reached the byte `reached` without a match. If `reached` is neither the
    beginning nor the end of the output, the client can send another search from this byte.
    """

    found: Optional[int]
    reached: int
    size: int


@dataclass(frozen=True)
class StepRequest:
    """The body of a request to record that a step of a running job has begun or ended. At the begin of the
    step, its number is -1 in the request, and the answer StepRecorded has the new number of the step. At the
    end of the step, the request has this number.
    """

    step: Step


@dataclass(frozen=True)
class StepRecorded:
    """The answer to StepRequest: the number of the recorded step."""

    number: int


@dataclass(frozen=True)
class ShellRequest:
    """A command to run in the allocation of a running job; if `command` is empty, a login shell. `node`
    selects one of the nodes of the job. `variables` are added to the environment of the command.
    """

    command: tuple[str, ...] = ()
    tty: bool = False
    rows: int = 24
    columns: int = 80
    term: str = ""
    node: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ShellOpened:
    """The id of an opened `corral exec` session. Only the user that opened the session may use
    the session.
    """

    shell: str


@dataclass(frozen=True)
class ShellSaid:
    """A part of the output of a `corral exec` command, as base64. If `end` is True, the command has ended,
    and this body has its exit code or signal instead of output. If the command could not start, or Corral
    ended the command, `error` is the reason.
    """

    stream: str = ""
    data: str = ""
    end: bool = False
    code: Optional[int] = None
    signal: Optional[int] = None
    error: str = ""


@dataclass(frozen=True)
class ShellGiven:
    """Input for a `corral exec` command, as base64. If `end` is True, the input ends. `rows` and `columns`
    are the new size of the terminal window; 0 means no change.
    """

    data: str = ""
    end: bool = False
    rows: int = 0
    columns: int = 0


@dataclass(frozen=True)
class Held:
    """The resources that are allocated to an attempt on one node."""

    node: str
    cpu_milli: int
    memory_mib: int
    gpus: tuple[GpuShare, ...] = ()
    scratch_mib: int = 0


@dataclass(frozen=True)
class Failure:
    """The class of a job's failure, such as gpu_out_of_memory, with one sentence about the cause and one
    about what to do.
    """

    name: str
    sentence: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class LastAttempt:
    """The time and the reason of the end of the previous attempt. `reason` is, for example, preempted or
    exit_nonzero.
    """

    attempt: int
    at: float
    reason: Reason
    detail: str = ""
    failure: Optional[Failure] = None


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
    """GPU usage of the last attempt, up to now for a running attempt; None if there are no measurements."""
    idle_since: Optional[float] = None
    """The time since which the job's GPUs have had no load. None if they have load, or if they have had no
    load for less than `idle_after_s` (a setting of [gpus] or of the job's queue).
    """
    kept_until: Optional[float] = None
    """The time until which idle GPUs are no reason to end the job. `corral job keep` sets this time; None if
    the command was not used.
    """
    silent: tuple[str, ...] = ()
    """Nodes of the running job that do not report. Whether the job still runs on these nodes is unknown."""
    profile: str = ""
    """The scheduler profile of the job; empty on a cluster without profiles."""
    service: str = ""
    """The service of which the job is a replica; empty for other jobs."""
    host_use: Optional[HostUse] = None
    """CPU time of the last attempt on all its nodes, and its memory on the node where it uses the most; None
    if there are no measurements.
    """
    failure: Optional[Failure] = None
    """The cause of the failure of the last attempt, if the job has ended. None if this attempt did not fail,
    or if the field `reason` already states the cause.
    """
    last: Optional[LastAttempt] = None
    """The end of the previous attempt, if the job was queued again; otherwise None."""
    qos: str = ""
    """The QoS class of the job: guaranteed, burstable or best-effort."""
    workload: Optional[int] = None
    """The workload to which the job belongs. None if the job belongs to no workload."""
    task: str = ""
    waits_long: bool = False
    """True for a waiting job that has waited more than `[scheduler] wait_alarm` times as long as similar jobs
    usually wait.
    """


@dataclass(frozen=True)
class JobGroup:
    """A workload or an array as one row of the queue. `id` is the lowest id of its jobs in the list, and
    `kind` is workload or array. The counts in the row include ended jobs, but not jobs that a retry of the
    workload has replaced by new jobs.
    """

    id: int
    kind: str
    label: str
    name: str
    user: str
    project: str
    queue: str
    priority: int
    submitted_at: float
    total: int
    waiting: int
    running: int
    completed: int
    failed: int
    cancelled: int
    gpus: float = 0.0
    """The GPUs that the running jobs of this workload or array hold."""
    ends_at: Optional[float] = None
    """The expected end of the last job of this workload or array, from a forecast with predicted run times.
    None if this end is not known.
    """
    place: Optional[int] = None
    """The place of the first waiting job of this workload or array; see `QueuePlace`."""
    starts_at: Optional[float] = None
    """The expected start of the first waiting job of this workload or array; see `QueuePlace`."""


@dataclass(frozen=True)
class QueuePlace:
    """The place of a waiting job: 1 for the job that the scheduler tries first. The places of each profile
    begin at 1. Jobs that are held, or wait for other jobs or for a time, have no place.
    """

    job: int
    place: int
    starts_at: Optional[float] = None
    """The expected start, from a forecast of the last seconds with predicted run times. None if the start is
    not known.
    """


@dataclass(frozen=True)
class JobsOrder:
    """An order for one or many jobs. `action` is cancel, hold, release, preempt, requeue or set.

    `jobs` has job selections such as 7, 7_3, 7_[0-9], 1-3, user:ada, last or all. `mine` leaves out jobs of
    other users. Without `jobs`, `mine` selects all jobs of the requesting user. The action `set` uses
    `changes` and `extend_s`, which are as in JobChange. With `stay_held` a preempted job is also held. With
    `only_tell` nothing is changed, and the answer shows which jobs the order would change.
    """

    action: str
    jobs: tuple[str, ...] = ()
    mine: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)
    stay_held: bool = False
    only_tell: bool = False
    extend_s: float = 0.0


@dataclass(frozen=True)
class JobRefused:
    """A job for which the order was refused, or a job selection that matches no job, with the reason."""

    job: str
    problem: Problem


@dataclass(frozen=True)
class JobsAnswer:
    """The answer to JobsOrder: the jobs for which the order was carried out, in their new state, and the
    refusals.
    """

    done: tuple[JobView, ...]
    refused: tuple[JobRefused, ...] = ()


@dataclass(frozen=True)
class PreemptAction:
    """The body of a request to preempt a job. With `hold` the job is also held: the job does not start again
    before its release.
    """

    hold: bool = False


@dataclass(frozen=True)
class KeepRequest:
    """The body of a request to keep a running job for `for_s` seconds although its GPUs are idle."""

    for_s: float
    why: str = ""


@dataclass(frozen=True)
class Preempted:
    """One preemption of a job: its cause, and the GPU-hours of work that the job lost."""

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
    """The time at which the job started on the new nodes; None before that time. `undone` is the reason why
    the move failed. While `done_at` is None and `undone` is empty, the move continues.
    """
    undone: str = ""


@dataclass(frozen=True)
class JobDetail:
    """A job with its whole request and the reason for its state. For users other than the job's owner and
    operators, `spec` has no environment and no arguments of commands.
    """

    job: JobView
    spec: JobSpec
    why: Why
    checkpoint: Optional[Checkpoint] = None
    preemptions: tuple[Preempted, ...] = ()
    predicted_s: Optional[float] = None
    """The run time predicted from similar jobs, in seconds. For a started job, the value is the prediction at
    its start.
    """
    planned_s: Optional[float] = None
    """The run time that the scheduler assumes for a running job, in seconds; None if the scheduler assumes
    the time limit.
    """
    foreseen: tuple[Foreseen, ...] = ()
    """The start times that Corral estimated for the job while the job waited."""
    moves: tuple[Moved, ...] = ()


@dataclass(frozen=True)
class JobList:
    """One page of jobs, ordered by id. `seq` is the number of the newest journal entry that the page
    includes. A request with `after` set to `next` gets the next page.

    If the request has `folded`, the jobs of workloads and arrays are left out. The first page then has one
    row for each workload or array in `groups`. If the request has `places`, the first page has `places`: the
    first 1,000 waiting jobs of each profile, in the order of the scheduler.
    """

    jobs: tuple[JobView, ...]
    seq: int
    total: int
    next: Optional[int] = None
    groups: tuple[JobGroup, ...] = ()
    places: tuple[QueuePlace, ...] = ()
