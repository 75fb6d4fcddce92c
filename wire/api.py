"""The bodies of the HTTP API, in and out. Paths stand in docs/api.md and /v1/openapi.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Optional

from wire.frames import Checkpoint, GpuProcess, GpuUse, NumaFacts
from wire.hosts import HostSpec
from wire.quota import Limits, Quota
from wire.reservation import ReservationSpec
from wire.spec import JobSpec
from wire.words import GpuHealth, JobState, NodeState, Reason


@dataclass(frozen=True)
class Problem:
    """Every refusal: `code` for programs, `message` what is wrong, `where` the field, `hint` what to do."""

    code: str
    message: str
    where: str = ""
    hint: str = ""


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
    """What a host is like; `ready` if it can join as it is. `host_key` is the key that it showed."""

    name: str
    address: str
    ready: bool
    checks: tuple[Check, ...]
    host_key: str = ""
    fingerprint: str = ""


@dataclass(frozen=True)
class NodeMarks:
    """Labels and taints to set on a node, or with null to take away; a taint's name is `key:Effect`."""

    labels: Mapping[str, Optional[str]] = field(default_factory=dict)
    taints: Mapping[str, Optional[str]] = field(default_factory=dict)


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
class GpuShare:
    """A GPU of a node, or a part of it."""

    index: int
    uuid: str
    milli: int


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
class Ousted:
    """A running job that would be ended, for which job, and what that would lose now."""

    job: int
    label: str
    name: str
    user: str
    gpu_hours: float
    by: str = ""
    at: Optional[float] = None


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
class FilterLoss:
    """Nodes that one filter took away, with a few of their names."""

    filter: str
    lost: int
    message: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Points:
    """One line of a receipt: a factor from 0 to 1 times its weight."""

    name: str
    factor: float
    weight: float
    points: float
    note: str = ""
    """Where the factor comes from, if it is not the job's own."""


@dataclass(frozen=True)
class Why:
    """The one dominant reason in a sentence, the nodes lost per filter, the place in the queue."""

    reason: Reason
    sentence: str
    losses: tuple[FilterLoss, ...] = ()
    position: Optional[int] = None
    fitting: int = 0
    receipt: tuple[Points, ...] = ()
    """What the job's place in the queue is made of; the sum of the points, in this order, decides."""


@dataclass(frozen=True)
class Easing:
    """Fields of a waiting job's JobSpec: changed so, they let it start in the next cycle. In words, too."""

    sentence: str
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Explanation:
    """Why a job is where it is, and when it starts at the latest if all keep to their limits.

    `starts_at` is None when that cannot be told: a job without a time limit stands before it. It is likely
    to start at `likely_at` if jobs run as predicted, and then to run for `predicted_s`.
    It would start now with any of the `easings`, the smallest change first, or if `victims` were ended;
    `makes_room`: they will be, in its turn.
    """

    job: JobView
    why: Why
    starts_at: Optional[float] = None
    nodes: tuple[str, ...] = ()
    victims: tuple[Ousted, ...] = ()
    makes_room: bool = False
    easings: tuple[Easing, ...] = ()
    likely_at: Optional[float] = None
    predicted_s: Optional[float] = None
    between: Optional[tuple[float, float]] = None
    """When it starts if what is said here is as wrong as it used to be: 8 of 10 started within that."""


@dataclass(frozen=True)
class ShareWeight:
    """What an organisation, a project or a user (`project/user`) weighs beside others, and its limits.

    Limits are units that count; -1: none, None: as before. Over the soft one its jobs come after everybody
    else's, at the hard one nothing of it starts.
    """

    share: str
    weight: Optional[float] = None
    soft: Optional[float] = None
    hard: Optional[float] = None


@dataclass(frozen=True)
class ShareView:
    """A place in the tree of shares. `used` is what counts now, in billing units; `held` is used per hour."""

    path: tuple[str, ...]
    share: str
    weight: float
    part: float
    """Of all weights beside it."""
    used: float
    held: float
    factor: float
    """1 if it used nothing; halved by each fair share used, at every level."""
    beyond: bool = False
    """Past a soft limit, of its own or above it."""
    soft: Optional[float] = None
    hard: Optional[float] = None
    stopped: str = ""
    """The share whose hard limit keeps its jobs from starting: its own, or one above it."""
    until: Optional[float] = None
    """When they start again at the latest, if that can be foretold."""


@dataclass(frozen=True)
class ShareList:
    """Everybody who has a share, from the top down."""

    shares: tuple[ShareView, ...]
    at: float


@dataclass(frozen=True)
class JobEdit:
    """A job that would ask for something else: fields of its JobSpec, as in JobChange."""

    job: int
    changes: Mapping[str, Any]


@dataclass(frozen=True)
class QuotaEdit:
    """A quota that would be laid over what holds; None: what was set while running is taken back."""

    scope: str
    name: str
    quota: Optional[Quota] = None


@dataclass(frozen=True)
class MoreNodes:
    """So many idle nodes with the GPUs, labels and taints of one that is there."""

    like: str
    count: int = 1


@dataclass(frozen=True)
class ConfigFile:
    """A scheduler.toml as text, and what to call it in complaints."""

    text: str
    name: str = "scheduler.toml"


@dataclass(frozen=True)
class LicenceView:
    """One licence: how many there are, who holds them, and who waits for some."""

    name: str
    total: int
    used: int
    jobs: tuple[str, ...] = ()
    """Those that hold some, as they are labelled; what is kept for one that is to start counts as held."""
    waiting: int = 0
    """Jobs in the queue that ask for some."""


@dataclass(frozen=True)
class LicenceList:
    """Every licence of the cluster, by name."""

    licences: tuple[LicenceView, ...]
    seq: int


@dataclass(frozen=True)
class WhatIf:
    """Changes to try on a copy: a configuration first, then nodes, shares, quotas, cancels, preemptions,
    holds, releases, drains, resumes, reservations, edits and submits.
    """

    submit: tuple[JobSpec, ...] = ()
    cancel: tuple[int, ...] = ()
    drain: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    shares: tuple[ShareWeight, ...] = ()
    reserve: tuple[ReservationSpec, ...] = ()
    edit: tuple[JobEdit, ...] = ()
    quotas: tuple[QuotaEdit, ...] = ()
    cancel_reservations: tuple[str, ...] = ()
    preempt: tuple[int, ...] = ()
    hold: tuple[int, ...] = ()
    release: tuple[int, ...] = ()
    nodes: tuple[MoreNodes, ...] = ()
    config: Optional[ConfigFile] = None


@dataclass(frozen=True)
class Shift:
    """A waiting job whose start would change; None: not within what can be foretold."""

    job: int
    label: str
    name: str
    user: str
    was: Optional[float]
    becomes: Optional[float]
    nodes: tuple[str, ...] = ()
    new: bool = False


@dataclass(frozen=True)
class WhatIfAnswer:
    """What would change. `refused` names the changes that would not be accepted, with the reason.

    `passed_over` names tables of a configuration that differ from what runs and have no part in this.
    `why` is what the first of the submitted jobs would wait for; the `easings` would start it at once.
    """

    now: float
    shifts: tuple[Shift, ...]
    unchanged: int
    refused: tuple[str, ...] = ()
    whole: bool = True
    preempted: tuple[Ousted, ...] = ()
    passed_over: tuple[str, ...] = ()
    why: Optional[Why] = None
    easings: tuple[Easing, ...] = ()


@dataclass(frozen=True)
class JobList:
    """Jobs by id, with the journal position they show; `next` continues a long listing."""

    jobs: tuple[JobView, ...]
    seq: int
    total: int
    next: Optional[int] = None


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


@dataclass(frozen=True)
class QuotaChange:
    """Limits to lay over what holds now; what is not named stays as it is."""

    quota: Quota


@dataclass(frozen=True)
class QuotaView:
    """What holds for a user, project or queue and what it uses; `edited` if that was set while running."""

    scope: str
    name: str
    quota: Quota
    used: Limits
    edited: bool


@dataclass(frozen=True)
class QuotaList:
    """Everybody with a quota or with jobs; GPU-hours are those of the last `window_s` seconds."""

    quotas: tuple[QuotaView, ...]
    window_s: float
    seq: int


@dataclass(frozen=True)
class ProfileView:
    """Who decides for which jobs, on which nodes and how: `policy` as it would stand in scheduler.toml.

    `terms` are what nodes must meet, `nodes` those that do, `shared` the profiles that use some of these.
    """

    name: str
    queues: tuple[str, ...]
    projects: tuple[str, ...]
    users: tuple[str, ...]
    terms: tuple[str, ...]
    nodes: tuple[str, ...]
    gpus: int
    shared: tuple[str, ...]
    queued: int
    running: int
    policy: Mapping[str, Any]
    preemption: Mapping[str, Any]


@dataclass(frozen=True)
class ProfileList:
    """In the order in which they are asked whether a job is theirs; none: one policy is for everybody."""

    profiles: tuple[ProfileView, ...]
    seq: int


@dataclass(frozen=True)
class ReserveRequest:
    """`anyway`: although jobs that run on the nodes may run into it."""

    reservation: ReservationSpec
    anyway: bool = False


@dataclass(frozen=True)
class ReservationView:
    """A reservation with the nodes it was given; `on` while its time is. It begins next, or began, then."""

    spec: ReservationSpec
    nodes: tuple[str, ...]
    starts_at: float
    ends_at: float
    on: bool
    by: str
    jobs: tuple[int, ...] = ()


@dataclass(frozen=True)
class ReservationList:
    """All that are to come or on, the next first."""

    reservations: tuple[ReservationView, ...]
    seq: int


@dataclass(frozen=True)
class ClusterView:
    """The cluster in one glance."""

    name: str
    version: str
    now: float
    seq: int
    jobs: Mapping[str, int]
    nodes: Mapping[str, int]
    gpus: int
    gpus_used: float
    cpu_milli: int
    cpu_used_milli: int
    started_at: float


@dataclass(frozen=True)
class UsageView:
    """What somebody's jobs made of GPUs: utilisation in percent, None where nobody measured it."""

    name: str
    jobs: int
    gpu_hours: float
    utilisation: Optional[float]
    p95: Optional[int]
    peak_mib: int
    energy_wh: float
    cpu_hours: float


@dataclass(frozen=True)
class UsageList:
    """Use in a window, the greatest first."""

    usage: tuple[UsageView, ...]
    since: float
    until: float


@dataclass(frozen=True)
class RunEstimate:
    """How predictions of run times did, for the jobs of one user; times are means in seconds.

    `bias_s` is above 0 if jobs run longer than predicted, `error_s` is without its sign; `outlived` is the
    part that ran longer. `limit_error_s` is how far time limits were off, of jobs that had one.
    """

    user: str
    jobs: int
    run_s: float
    bias_s: float
    error_s: float
    outlived: float
    limit_error_s: Optional[float] = None


@dataclass(frozen=True)
class StartEstimates:
    """How estimates of starts did; times are means in seconds. `kind`: promise (to the first that waits),
    latest (by limits) or likely (by predictions), both told when somebody asked.

    `bias_s` is above 0 if jobs start later than foretold, `error_s` is without its sign; `late` is the part
    that started later.
    """

    kind: str
    count: int
    ahead_s: float
    bias_s: float
    error_s: float
    late: float


@dataclass(frozen=True)
class Foreseen:
    """When a job was to start, as was said while it waited."""

    kind: str
    made_at: float
    start: float


@dataclass(frozen=True)
class EstimateReport:
    """How good estimates were: of run times by user, most jobs first. `plans`: limit or predicted."""

    plans: str
    runs: tuple[RunEstimate, ...]
    all_runs: Optional[RunEstimate] = None
    starts: tuple[StartEstimates, ...] = ()


@dataclass(frozen=True)
class StintView:
    """A user on a GPU past the queue; `until` is None while he is there, `units` is what it cost him."""

    user: str
    node: str
    gpu: int
    uuid: str
    pid: int
    command: str
    since: float
    until: Optional[float]
    gpu_hours: float
    units: float = 0.0


@dataclass(frozen=True)
class StintList:
    """Who worked past the queue in a window, the newest first; the GPU counts whole."""

    stints: tuple[StintView, ...]
    since: float
    until: float


@dataclass(frozen=True)
class EventView:
    """One fact of the journal, with a sentence for people."""

    seq: int
    at: float
    kind: str
    text: str
    job: Optional[int] = None
    node: Optional[str] = None
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EventList:
    """A page of the journal."""

    events: tuple[EventView, ...]
    seq: int


@dataclass(frozen=True)
class StreamBatch:
    """One commit on the stream: its events and every job and node as it is after them.

    A batch without events carries fresh GPU readings; it does not advance the journal.
    """

    seq: int
    events: tuple[EventView, ...] = ()
    jobs: tuple[JobView, ...] = ()
    nodes: tuple[NodeView, ...] = ()


@dataclass(frozen=True)
class Health:
    """Is the controller well?"""

    status: str
    version: str
    uptime_s: float
    seq: int
    user: str = ""
    role: str = ""


@dataclass(frozen=True)
class MoveView:
    """One job that would move: from what it holds to what would be kept for it, and what that costs."""

    job: int
    label: str
    name: str
    user: str
    origin: tuple[Held, ...]
    target: tuple[Held, ...]
    gpu_hours: float


@dataclass(frozen=True)
class SpreadView:
    """How what is free lies: GPUs wholly free, those of nodes wholly free, and the part not on such nodes."""

    free_gpus: int
    whole_gpus: int
    fragmentation: float


@dataclass(frozen=True)
class ProposalView:
    """Jobs that could be moved, at what cost, and what for; each proposal by itself."""

    id: str
    kind: str
    moves: tuple[MoveView, ...]
    gpu_hours: float
    worth: float
    """GPU-hours: earlier start, earlier end of a drain, GPUs gathered."""
    before: SpreadView
    after: SpreadView
    for_job: Optional[int] = None
    label: str = ""
    name: str = ""
    """The job that starts because of it."""
    place: tuple[Held, ...] = ()
    node: str = ""
    """The node that empties, or whose load is lightened."""
    rest: int = 0
    """Jobs that stay there all the same."""
    earlier_s: Optional[float] = None
    """By how much sooner; None where nobody knows when it would be otherwise."""
    gap: Optional[tuple[float, float]] = None
    """The difference between the loads of nodes, before and after."""


@dataclass(frozen=True)
class RebalanceView:
    """What could be done now, and the latest that was."""

    mode: str
    proposals: tuple[ProposalView, ...]
    moves: tuple[Moved, ...]
    seq: int


@dataclass(frozen=True)
class RebalanceRequest:
    """Body of run: one proposal, or empty: whatever can be proposed."""

    proposal: str = ""


@dataclass(frozen=True)
class Rebalanced:
    """The moves that have begun."""

    moves: tuple[Moved, ...]
