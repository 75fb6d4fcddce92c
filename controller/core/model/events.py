"""Events are facts in the past tense. The state changes only by applying them, and the journal has all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wire.agent.frames import Checkpoint, GpuHold, GpuUse, NodeFacts
from wire.cluster.hosts import HostSpec
from wire.cluster.quota import Quota
from wire.cluster.reservation import ReservationSpec
from wire.codec import decode, dumps, encode
from wire.job.affinity import Taint
from wire.job.spec import JobSpec
from wire.names import GpuHealth, JobState, Reason


@dataclass(frozen=True, slots=True)
class Allocation:
    """The resources that an attempt holds on one node."""

    node: str
    cpu_milli: int
    memory_mib: int
    gpus: tuple[GpuHold, ...] = ()
    numa: tuple[int, ...] = ()
    scratch_mib: int = 0


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event of one job."""

    job: int
    at: float


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """An event of one node."""

    node: str
    at: float


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """An event of the cluster as a whole."""

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
    """The closed gates, which keep the job out of the queue."""
    met: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    """Indices of the dependencies that are met already, or can never be met."""
    from_queue: tuple[str, ...] = ()
    """Labels that its queue added to its selector."""


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
    """The spec of the job was changed: the whole new spec, and the gates that are closed now."""

    spec: JobSpec
    by: str
    changed: tuple[str, ...]
    gates: tuple[Reason, ...] = ()
    met: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    from_queue: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobRelaxed(JobEvent):
    """The job has waited long enough to drop these constraints of its spec (`relax`)."""

    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobPromoted(JobEvent):
    """The job has waited long enough for a higher priority; this is the new one."""

    priority: int


@dataclass(frozen=True, slots=True)
class PriorityInherited(JobEvent):
    """The highest priority of the jobs that depend on this one, if above its own; 0: there is none."""

    priority: int
    heir: str
    """The label of the job with that priority."""


@dataclass(frozen=True, slots=True)
class StartEstimated(JobEvent):
    """An estimate of the start of a waiting job was shown to a user; it is scored when the job starts."""

    kind: str
    start: float


@dataclass(frozen=True, slots=True)
class DeadlineAtRisk(JobEvent):
    """By present plans no nodes are free at the job's latest start; with doubted=False there are."""

    doubted: bool


@dataclass(frozen=True, slots=True)
class DependencyDecided(JobEvent):
    """A dependency of the job, by its index in the spec, is met, or can never be met."""

    index: int
    met: bool
    detail: str = ""
    path: str = ""
    """The path that was found; empty for a dependency on a job."""


@dataclass(frozen=True, slots=True)
class GateClosed(JobEvent):
    """A gate was closed: it keeps the job out of the queue."""

    gate: Reason


@dataclass(frozen=True, slots=True)
class GateOpened(JobEvent):
    """A gate was opened. With no gate closed the job is in the queue."""

    gate: Reason


@dataclass(frozen=True, slots=True)
class JobPlaced(JobEvent):
    """A new attempt got its allocations; its processes have not started yet."""

    attempt: int
    allocations: tuple[Allocation, ...]
    quality: int
    predicted_s: float | None = None
    """The predicted run time in seconds, from earlier jobs like this one."""
    planned_s: float | None = None
    """Seconds after which plans expect its end; None: its time limit."""
    profile: str = ""
    """The profile that placed the job; empty on a cluster without profiles."""


@dataclass(frozen=True, slots=True)
class PredictionOutlived(JobEvent):
    """The job runs longer than predicted: plans use this run time now, or with None its time limit."""

    planned_s: float | None


@dataclass(frozen=True, slots=True)
class MemberReady(JobEvent):
    """One member of a gang is ready and waits at the barrier for the others."""

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
        """The same as MembersStarted.pids."""
        return {self.node: self.pid}


@dataclass(frozen=True, slots=True)
class CheckpointSaved(JobEvent):
    """A running attempt has saved a checkpoint."""

    attempt: int
    node: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class AttemptExited(JobEvent):
    """One member has ended and its allocation is free. `why` is empty if the program ended by itself."""

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
        """The same as MembersExited.exits."""
        return {self.node: self}


@dataclass(frozen=True, slots=True)
class MembersStarted(JobEvent):
    """Several members of an attempt have started; `pids` by node."""

    attempt: int
    pids: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class Exit:
    """How a member ended, with the fields of AttemptExited."""

    code: int | None = None
    signal: int | None = None
    why: str = ""
    cpu_s: float = 0.0
    max_rss_mib: int = 0
    checkpoint: Checkpoint | None = None
    use: GpuUse | None = None


@dataclass(frozen=True, slots=True)
class MembersExited(JobEvent):
    """Several members of an attempt have ended; `exits` by node."""

    attempt: int
    exits: Mapping[str, Exit]


@dataclass(frozen=True, slots=True)
class GpuFaultNoted(JobEvent):
    """A GPU that an attempt holds had a fault; `own` if the attempt caused it."""

    attempt: int
    node: str
    fault: str
    own: bool = False


@dataclass(frozen=True, slots=True)
class IdleNoted(JobEvent):
    """All GPUs of the job are idle since `since`. The job is ended at `until` if they stay idle."""

    attempt: int
    since: float
    until: float | None = None


@dataclass(frozen=True, slots=True)
class IdleEnded(JobEvent):
    """A GPU of the job is busy again."""

    attempt: int


@dataclass(frozen=True, slots=True)
class StopRequested(JobEvent):
    """The attempt was ordered to stop. The job ends when its processes have ended.

    `until` is the latest end if the attempt keeps to its grace time; plans use its resources from then on.
    """

    reason: Reason
    by: str
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Victim:
    """A job that is stopped for another job, and the GPU-hours since its last checkpoint, which are lost."""

    job: int
    gpu_hours: float
    attempt: int = 0
    nodes: tuple[str, ...] = ()
    """The nodes that an elastic job gives up; empty: the whole job is stopped."""


@dataclass(frozen=True, slots=True)
class PreemptionPlanned(JobEvent):
    """The job is nominated for these allocations and starts there when the victims have ended.

    `by` is the latest end of the victims if all keep to their grace time.
    """

    allocations: tuple[Allocation, ...]
    quality: int
    victims: tuple[Victim, ...]
    strategy: str
    by: float

    def leaving(self, node: str) -> list[int]:
        """The victims that release this node."""
        return [victim.job for victim in self.victims if not victim.nodes or node in victim.nodes]


@dataclass(frozen=True, slots=True)
class PreemptionDropped(JobEvent):
    """The nomination of the job was dropped: it cannot or must not start there any more."""

    why: str


@dataclass(frozen=True, slots=True)
class MovePlanned(JobEvent):
    """The job was ordered to save a checkpoint and end; it is nominated for these allocations.

    `until` is its latest end. The move makes room for `for_job`, or empties `node`.
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
    """The job was not moved. It is nominated for its former allocations if these are free."""

    attempt: int
    why: str
    allocations: tuple[Allocation, ...] = ()


@dataclass(frozen=True, slots=True)
class JobShrunk(JobEvent):
    """The members of an elastic job on these nodes were ordered to stop for other jobs; the others go on."""

    attempt: int
    nodes: tuple[str, ...]
    by: str
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class JobGrew(JobEvent):
    """An elastic job got more nodes, because no job waited for them."""

    attempt: int
    allocations: tuple[Allocation, ...]


@dataclass(frozen=True, slots=True)
class JobPreempted(JobEvent):
    """The attempt was ended so that another job could run; `by` names that job or an operator."""

    attempt: int
    by: str
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class JobRequeued(JobEvent):
    """The attempt has ended without an outcome; the job is queued again at its former position."""

    attempt: int
    reason: Reason
    detail: str = ""
    again_at: float | None = None
    """The job is kept out of the queue until then."""
    restart: bool = False
    """The job's own restart policy caused it; it counts against the limit of that policy."""


@dataclass(frozen=True, slots=True)
class JobEnded(JobEvent):
    """The outcome of the job. No event of this job follows."""

    state: JobState
    reason: Reason
    detail: str = ""
    code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class NodeAdded(NodeEvent):
    """A node was added or its configuration changed; `host` and `by` if an operator did it."""

    labels: Mapping[str, str] = field(default_factory=dict)
    host: HostSpec | None = None
    by: str = ""
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRemoved(NodeEvent):
    """The node was removed from the cluster. Everything that ran there had ended."""

    by: str


@dataclass(frozen=True, slots=True)
class NodeMarked(NodeEvent):
    """Labels or taints were set, or removed (None). The name of a taint is `key:Effect`."""

    by: str
    labels: Mapping[str, str | None] = field(default_factory=dict)
    taints: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Overcommit:
    """Factors by which the CPU and memory of a node may be given out more than once."""

    cpu: float = 1.0
    memory: float = 1.0

    def of(self, facts: NodeFacts) -> tuple[int, int]:
        """CPU-milli and MiB that may be given out."""
        return round(facts.cpu_milli * self.cpu), round(facts.memory_mib * self.memory)


AS_IT_IS = Overcommit()


@dataclass(frozen=True, slots=True)
class NodeJoined(NodeEvent):
    """An agent said hello: the hardware of its node, and the overcommit factors."""

    facts: NodeFacts
    boot_id: str
    version: str = ""
    overcommit: Overcommit = AS_IT_IS


@dataclass(frozen=True, slots=True)
class NodeWentAway(NodeEvent):
    """The link to the agent is gone. Running jobs go on; no job is placed there."""

    why: str


@dataclass(frozen=True, slots=True)
class NodeWentDown(NodeEvent):
    """The node has been away longer than `down_after_s`; plans do not count on it any more."""


@dataclass(frozen=True, slots=True)
class NodeDeclaredLost(NodeEvent):
    """An operator declared that nothing runs there any more. Its jobs end, or are queued again."""

    by: str


@dataclass(frozen=True, slots=True)
class NodeDrained(NodeEvent):
    """No job is placed on the node any more. Running jobs go on."""

    why: str
    by: str


@dataclass(frozen=True, slots=True)
class NodeResumed(NodeEvent):
    """Jobs are placed on the node again."""

    by: str


@dataclass(frozen=True, slots=True)
class GpuHealthRecorded(NodeEvent):
    """The health of one GPU changed."""

    uuid: str
    health: GpuHealth
    why: str = ""
    needs: str = ""
    falls: int = 0
    good: int = 0
    due: float = 0.0
    by: str = ""


@dataclass(frozen=True, slots=True)
class OffQueueProcessStarted(ClusterEvent):
    """A user has a process on a GPU that no job started; `rate` is its charge in billing units per hour."""

    node: str
    uuid: str
    user: str
    pid: int
    command: str
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class OffQueueProcessEnded(ClusterEvent):
    """The last such process of the user on this GPU has ended."""

    node: str
    uuid: str
    user: str
    since: float


@dataclass(frozen=True, slots=True)
class HostKeyPinned(ClusterEvent):
    """The SSH host key of a node was pinned. Removing the node removes the key."""

    node: str
    key: str
    by: str


@dataclass(frozen=True, slots=True)
class QuotaSet(ClusterEvent):
    """An operator set a quota, which overrides the configuration."""

    scope: str
    name: str
    quota: Quota
    by: str


@dataclass(frozen=True, slots=True)
class QuotaUnset(ClusterEvent):
    """The quota of an operator was removed; the configuration applies again."""

    scope: str
    name: str
    by: str


@dataclass(frozen=True, slots=True)
class ShareSet(ClusterEvent):
    """An organisation, project or user (`project/user`) got a weight or limits; None: unchanged."""

    share: str
    weight: float | None
    by: str
    soft: float | None = None
    hard: float | None = None


@dataclass(frozen=True, slots=True)
class ReservationMade(ClusterEvent):
    """Nodes were reserved."""

    asked: ReservationSpec
    nodes: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True)
class ReservationBegan(ClusterEvent):
    """The reservation has begun."""

    reservation: str


@dataclass(frozen=True, slots=True)
class ReservationEnded(ClusterEvent):
    """The reservation has ended; `again_at` is the start of its next occurrence, None: there is none."""

    reservation: str
    again_at: float | None = None


@dataclass(frozen=True, slots=True)
class ReservationCancelled(ClusterEvent):
    """The reservation was cancelled."""

    reservation: str
    by: str


@dataclass(frozen=True, slots=True)
class RebalancePlanned(ClusterEvent):
    """These jobs are moved so that another can start, a node becomes empty, or free GPUs lie together."""

    proposal: str
    kind: str
    by: str
    moves: tuple[int, ...]
    gpu_hours: float
    """The cost of the moves."""
    worth: float
    """The gain, in GPU-hours like the cost."""
    for_job: int | None = None
    node: str = ""


@dataclass(frozen=True, slots=True)
class ConfigApplied(ClusterEvent):
    """The controller uses another configuration."""

    digest: str
    by: str
    changed: tuple[str, ...] = ()
    """The changed keys without values, because every user may read events and values may be secret."""
    policy: str = ""
    """The policy tables of scheduler.toml, as JSON."""
    overcommit: Overcommit | None = None
    """The new factors of every node; None: unchanged."""


@dataclass(frozen=True, slots=True)
class JournalSealed(ClusterEvent):
    """The entries up to `through` are deleted from the journal; `digest` is the hash of that entry."""

    through: int
    digest: str


@dataclass(frozen=True, slots=True)
class PluginFailed(ClusterEvent):
    """A plugin raised an exception or gave an invalid answer. It is skipped for a cycle, or for good."""

    kind: str
    name: str
    why: str
    given_up: bool


Event = JobEvent | NodeEvent | ClusterEvent
"""Each class above that has one of these bases is a kind of event."""

JOURNAL_NAMES = {
    "OffQueueProcessStarted": "StrangerCame",
    "OffQueueProcessEnded": "StrangerLeft",
    "DeadlineAtRisk": "DeadlineDoubted",
}
"""Classes that were renamed, with the kind that journals, the API and saved traces have for them."""

_KIND_OF: dict[type[Any], str] = {
    event: JOURNAL_NAMES.get(name, name)
    for name, event in list(globals().items())
    if isinstance(event, type) and issubclass(event, Event) and event.__bases__ != (object,)
}
KINDS: dict[str, type[Any]] = {kind: event for event, kind in _KIND_OF.items()}
"""The class of each kind of journal entry."""


def kind_of(event: Event) -> str:
    """The kind of the journal entry of an event: the name of its class, unless that was renamed."""
    return _KIND_OF[type(event)]


def body_of(event: Event) -> str:
    """The event as JSON, as the journal has it."""
    return dumps(encode(event))


def event_of(kind: str, body: str) -> Event:
    """The event of a journal entry. Raises KeyError for an unknown kind, Malformed for a wrong body."""
    event: Event = decode(KINDS[kind], json.loads(body))
    return event
