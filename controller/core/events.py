"""Facts, in the past tense. State changes only by applying them; the journal keeps them for ever."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wire.affinity import Taint
from wire.codec import decode, dumps, encode
from wire.frames import Checkpoint, GpuHold, GpuUse, NodeFacts
from wire.hosts import HostSpec
from wire.quota import Quota
from wire.reservation import ReservationSpec
from wire.spec import JobSpec
from wire.words import GpuHealth, JobState, Reason


@dataclass(frozen=True, slots=True)
class Allocation:
    """What an attempt holds on one node."""

    node: str
    cpu_milli: int
    memory_mib: int
    gpus: tuple[GpuHold, ...] = ()
    numa: tuple[int, ...] = ()
    scratch_mib: int = 0


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something happened to a job."""

    job: int
    at: float


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """Something happened to a node."""

    node: str
    at: float


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """Something happened to the cluster as a whole."""

    at: float


@dataclass(frozen=True, slots=True)
class JobQueued(JobEvent):
    """A submit was accepted; each element of an array is a job of its own."""

    spec: JobSpec
    user: str
    key: str = ""
    array: int | None = None
    index: int | None = None
    gates: tuple[Reason, ...] = ()
    """What keeps it out of the queue for now."""
    met: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    """Which of its dependencies are decided already."""
    from_queue: tuple[str, ...] = ()
    """Labels in its selector that its queue has put there."""


@dataclass(frozen=True, slots=True)
class JobHeld(JobEvent):
    """The job stays in the queue until released."""

    by: str


@dataclass(frozen=True, slots=True)
class JobReleased(JobEvent):
    """The hold is over."""

    by: str


@dataclass(frozen=True, slots=True)
class JobEdited(JobEvent):
    """Somebody changed what the job asks for; this is all of it, and what keeps it out of the queue now."""

    spec: JobSpec
    by: str
    changed: tuple[str, ...]
    gates: tuple[Reason, ...] = ()
    met: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    from_queue: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobRelaxed(JobEvent):
    """The job has waited long enough to do without these fields of its spec."""

    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobPromoted(JobEvent):
    """The job has waited long enough for a higher priority, which is this now."""

    priority: int


@dataclass(frozen=True, slots=True)
class PriorityInherited(JobEvent):
    """The most important job that waits for this one has this priority, above its own; 0: there is none."""

    priority: int
    heir: str
    """Its label."""


@dataclass(frozen=True, slots=True)
class StartEstimated(JobEvent):
    """When a waiting job is to start, as was just foretold to it or to who asked; scored when it does."""

    kind: str
    start: float


@dataclass(frozen=True, slots=True)
class DeadlineDoubted(JobEvent):
    """When a waiting job has to start there will be no room for it, as far as can be told; or there will."""

    doubted: bool


@dataclass(frozen=True, slots=True)
class DependencyDecided(JobEvent):
    """One of the things the job waits for, by its place in the spec, has happened, or never will."""

    index: int
    met: bool
    detail: str = ""
    path: str = ""
    """Where the data is that has been found; empty for what happened to a job."""


@dataclass(frozen=True, slots=True)
class GateClosed(JobEvent):
    """One thing more keeps the job out of the queue."""

    gate: Reason


@dataclass(frozen=True, slots=True)
class GateOpened(JobEvent):
    """One thing less keeps the job out of the queue."""

    gate: Reason


@dataclass(frozen=True, slots=True)
class JobPlaced(JobEvent):
    """Attempt `attempt` got its allocations; its processes are not there yet."""

    attempt: int
    allocations: tuple[Allocation, ...]
    quality: int
    predicted_s: float | None = None
    """How long it is likely to run, by what is known of its like."""
    planned_s: float | None = None
    """How long plans count on it; None: as long as it may run."""
    profile: str = ""
    """Whose decision it was; empty on a cluster without profiles."""


@dataclass(frozen=True, slots=True)
class PredictionOutlived(JobEvent):
    """The job runs longer than plans counted on; they count on this now, or with None on its limit."""

    planned_s: float | None


@dataclass(frozen=True, slots=True)
class MemberReady(JobEvent):
    """One member of a gang has everything it needs, and waits for the others."""

    attempt: int
    node: str


@dataclass(frozen=True, slots=True)
class AttemptStarted(JobEvent):
    """The process of one member is running."""

    attempt: int
    node: str
    pid: int | None = None

    @property
    def pids(self) -> Mapping[str, int | None]:
        """As MembersStarted has it."""
        return {self.node: self.pid}


@dataclass(frozen=True, slots=True)
class CheckpointSaved(JobEvent):
    """An attempt that runs has saved its state."""

    attempt: int
    node: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class AttemptExited(JobEvent):
    """One member is over and its allocation free; `why` names an end not the program's own."""

    attempt: int
    node: str
    code: int | None = None
    signal: int | None = None
    why: str = ""
    cpu_s: float = 0.0
    max_rss_mib: int = 0
    checkpoint: Checkpoint | None = None
    use: GpuUse | None = None

    @property
    def exits(self) -> Mapping[str, AttemptExited]:
        """As MembersExited has it."""
        return {self.node: self}


@dataclass(frozen=True, slots=True)
class MembersStarted(JobEvent):
    """Several members of an attempt said at once that their processes run; `pids` by node."""

    attempt: int
    pids: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class Exit:
    """How a member ended: what AttemptExited says of one."""

    code: int | None = None
    signal: int | None = None
    why: str = ""
    cpu_s: float = 0.0
    max_rss_mib: int = 0
    checkpoint: Checkpoint | None = None
    use: GpuUse | None = None


@dataclass(frozen=True, slots=True)
class MembersExited(JobEvent):
    """Several members of an attempt said at once that they are over; `exits` by node."""

    attempt: int
    exits: Mapping[str, Exit]


@dataclass(frozen=True, slots=True)
class GpuFaultNoted(JobEvent):
    """Something happened to a GPU that an attempt holds: its own doing, or that of the GPU."""

    attempt: int
    node: str
    fault: str
    own: bool = False


@dataclass(frozen=True, slots=True)
class IdleNoted(JobEvent):
    """All GPUs of the job have done nothing since then; if that stays so it is ended at `until`."""

    attempt: int
    since: float
    until: float | None = None


@dataclass(frozen=True, slots=True)
class IdleEnded(JobEvent):
    """Some GPU of the job works again."""

    attempt: int


@dataclass(frozen=True, slots=True)
class StopRequested(JobEvent):
    """Somebody or something wants the attempt to end; the job ends when its processes have.

    With `until` its room is counted on from then: it is over by then if it keeps to its grace.
    """

    reason: Reason
    by: str
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Victim:
    """A job that has to end before its time, and what that loses: GPU-hours since its last checkpoint."""

    job: int
    gpu_hours: float
    attempt: int = 0
    nodes: tuple[str, ...] = ()
    """Of an elastic job only what runs there has to end; empty: all of it."""


@dataclass(frozen=True, slots=True)
class PreemptionPlanned(JobEvent):
    """The job starts on these allocations, kept for it, as soon as the victims are gone.

    `by` is when they are gone at the latest, if all keep to their grace.
    """

    allocations: tuple[Allocation, ...]
    quality: int
    victims: tuple[Victim, ...]
    strategy: str
    by: float

    def leaving(self, node: str) -> list[int]:
        """The jobs that leave this node, or all nodes."""
        return [victim.job for victim in self.victims if not victim.nodes or node in victim.nodes]


@dataclass(frozen=True, slots=True)
class PreemptionDropped(JobEvent):
    """What was kept for the job is kept no longer: it cannot start there any more, or is not to."""

    why: str


@dataclass(frozen=True, slots=True)
class MovePlanned(JobEvent):
    """The job is told to save its state and end; it starts again on these allocations, which are kept for it.

    `until` is when it is gone at the latest; `for_job` starts, or `node` empties, because it moves.
    """

    attempt: int
    allocations: tuple[Allocation, ...]
    quality: int
    proposal: str
    kind: str
    gpu_hours: float
    until: float
    for_job: int | None = None
    node: str = ""


@dataclass(frozen=True, slots=True)
class MoveUndone(JobEvent):
    """The job does not start where it was to; what it had before is kept for it instead, if that is free."""

    attempt: int
    why: str
    allocations: tuple[Allocation, ...] = ()


@dataclass(frozen=True, slots=True)
class JobShrunk(JobEvent):
    """What an elastic job runs on these nodes is being ended so that others can run; the rest goes on."""

    attempt: int
    nodes: tuple[str, ...]
    by: str
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class JobGrew(JobEvent):
    """An elastic job got more nodes, because nobody else waited for them."""

    attempt: int
    allocations: tuple[Allocation, ...]


@dataclass(frozen=True, slots=True)
class JobPreempted(JobEvent):
    """The attempt was ended so that others could run; `by` names who had it ended."""

    attempt: int
    by: str
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class JobRequeued(JobEvent):
    """The attempt is over without an outcome of its own; the job is back in its old place."""

    attempt: int
    reason: Reason
    detail: str = ""
    again_at: float | None = None
    """It waits until then first."""
    restart: bool = False
    """By the job's own restart policy, whose limit it counts against."""


@dataclass(frozen=True, slots=True)
class JobEnded(JobEvent):
    """The outcome. Nothing follows for this job."""

    state: JobState
    reason: Reason
    detail: str = ""
    code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class NodeAdded(NodeEvent):
    """A node that has not been seen yet, or another way to one: `host` and `by` if an operator added it."""

    labels: Mapping[str, str] = field(default_factory=dict)
    host: HostSpec | None = None
    by: str = ""
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRemoved(NodeEvent):
    """The node is none of this cluster's any more. What ran there had ended."""

    by: str


@dataclass(frozen=True, slots=True)
class NodeMarked(NodeEvent):
    """Somebody set or took away labels or taints; None takes away, a taint's name is `key:Effect`."""

    by: str
    labels: Mapping[str, str | None] = field(default_factory=dict)
    taints: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Overcommit:
    """How many times over what a node has is given out: requests are rarely used up."""

    cpu: float = 1.0
    memory: float = 1.0

    def of(self, facts: NodeFacts) -> tuple[int, int]:
        """CPU-milli and MiB that may be given out."""
        return round(facts.cpu_milli * self.cpu), round(facts.memory_mib * self.memory)


AS_IT_IS = Overcommit()


@dataclass(frozen=True, slots=True)
class NodeJoined(NodeEvent):
    """An agent said hello: this is what the node has, and how many times over it is given out."""

    facts: NodeFacts
    boot_id: str
    version: str = ""
    overcommit: Overcommit = AS_IT_IS


@dataclass(frozen=True, slots=True)
class NodeWentAway(NodeEvent):
    """The link is gone; what runs there goes on, nothing new is placed."""

    why: str


@dataclass(frozen=True, slots=True)
class NodeWentDown(NodeEvent):
    """It has been away for so long that nobody expects it back soon."""


@dataclass(frozen=True, slots=True)
class NodeDeclaredLost(NodeEvent):
    """An operator vouches that nothing runs there any more; its jobs end, or start anew elsewhere."""

    by: str


@dataclass(frozen=True, slots=True)
class NodeDrained(NodeEvent):
    """No new work; what runs there ends by itself."""

    why: str
    by: str


@dataclass(frozen=True, slots=True)
class NodeResumed(NodeEvent):
    """The node takes work again."""

    by: str


@dataclass(frozen=True, slots=True)
class GpuHealthRecorded(NodeEvent):
    """One GPU fell ill or recovered."""

    uuid: str
    health: GpuHealth
    why: str = ""
    needs: str = ""
    falls: int = 0
    good: int = 0
    due: float = 0.0
    by: str = ""


@dataclass(frozen=True, slots=True)
class StrangerCame(ClusterEvent):
    """Somebody works on a GPU past the queue; `rate` is what that costs him, in units per hour."""

    node: str
    uuid: str
    user: str
    pid: int
    command: str
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class StrangerLeft(ClusterEvent):
    """He does not any more."""

    node: str
    uuid: str
    user: str
    since: float


@dataclass(frozen=True, slots=True)
class HostKeyPinned(ClusterEvent):
    """A node's host has this key from now on, and no other; forgotten when the node is removed."""

    node: str
    key: str
    by: str


@dataclass(frozen=True, slots=True)
class QuotaSet(ClusterEvent):
    """An operator laid a quota over what the configuration states."""

    scope: str
    name: str
    quota: Quota
    by: str


@dataclass(frozen=True, slots=True)
class QuotaUnset(ClusterEvent):
    """What the configuration states holds again."""

    scope: str
    name: str
    by: str


@dataclass(frozen=True, slots=True)
class ShareSet(ClusterEvent):
    """An organisation, project or user (`project/user`) has another weight or limits; None: as before."""

    share: str
    weight: float | None
    by: str
    soft: float | None = None
    hard: float | None = None


@dataclass(frozen=True, slots=True)
class ReservationMade(ClusterEvent):
    """These nodes are kept for a time."""

    asked: ReservationSpec
    nodes: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True)
class ReservationBegan(ClusterEvent):
    """Its time is on."""

    reservation: str


@dataclass(frozen=True, slots=True)
class ReservationEnded(ClusterEvent):
    """Its time is over; it comes again then, or never."""

    reservation: str
    again_at: float | None = None


@dataclass(frozen=True, slots=True)
class ReservationCancelled(ClusterEvent):
    """The nodes are kept no longer."""

    reservation: str
    by: str


@dataclass(frozen=True, slots=True)
class RebalancePlanned(ClusterEvent):
    """These jobs are moved so that another can start, a node empties, or what is free lies together."""

    proposal: str
    kind: str
    by: str
    moves: tuple[int, ...]
    gpu_hours: float
    """What that costs."""
    worth: float
    """And what it brings, in the same coin."""
    for_job: int | None = None
    node: str = ""


@dataclass(frozen=True, slots=True)
class PluginFailed(ClusterEvent):
    """A plugin raised, or answered what cannot be; it is passed over for the cycle, or given up."""

    kind: str
    name: str
    why: str
    given_up: bool


Event = (
    JobQueued
    | JobHeld
    | JobReleased
    | JobEdited
    | JobRelaxed
    | JobPromoted
    | PriorityInherited
    | DeadlineDoubted
    | StartEstimated
    | DependencyDecided
    | GateClosed
    | GateOpened
    | JobPlaced
    | PredictionOutlived
    | MemberReady
    | AttemptStarted
    | CheckpointSaved
    | AttemptExited
    | MembersStarted
    | MembersExited
    | GpuFaultNoted
    | IdleNoted
    | IdleEnded
    | StopRequested
    | PreemptionPlanned
    | PreemptionDropped
    | MovePlanned
    | MoveUndone
    | JobShrunk
    | JobGrew
    | JobPreempted
    | JobRequeued
    | JobEnded
    | NodeAdded
    | NodeRemoved
    | NodeMarked
    | NodeJoined
    | NodeWentAway
    | NodeWentDown
    | NodeDeclaredLost
    | NodeDrained
    | NodeResumed
    | GpuHealthRecorded
    | StrangerCame
    | StrangerLeft
    | HostKeyPinned
    | QuotaSet
    | QuotaUnset
    | ShareSet
    | RebalancePlanned
    | PluginFailed
    | ReservationMade
    | ReservationBegan
    | ReservationEnded
    | ReservationCancelled
)

KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in Event.__args__}


def body_of(event: Event) -> str:
    """The event as the journal keeps it."""
    return dumps(encode(event))


def event_of(kind: str, body: str) -> Event:
    """The event back from the journal."""
    event: Event = decode(KINDS[kind], json.loads(body))
    return event
