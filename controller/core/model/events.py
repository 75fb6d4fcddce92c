"""Events record what has happened. Only events change the state, and the journal has all events."""

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
    """An event about one job."""

    job: int
    at: float


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """An event about one node."""

    node: str
    at: float


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """An event about the cluster as a whole."""

    at: float


@dataclass(frozen=True, slots=True)
class JobQueued(JobEvent):
    """A submitted job was accepted. An array has one such event for each of its elements."""

    spec: JobSpec
    user: str
    key: str = ""
    array: int | None = None
    index: int | None = None
    gates: tuple[Reason, ...] = ()
    """The closed gates, which keep the job out of the queue."""
    met: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    """`met`: indices of the dependencies that are met already. `lost`: of those that can never be met."""
    from_queue: tuple[str, ...] = ()
    """The labels that the job's queue added to the job's selector."""


@dataclass(frozen=True, slots=True)
class JobHeld(JobEvent):
    """The job was held: it does not start until it is released."""

    by: str


@dataclass(frozen=True, slots=True)
class JobReleased(JobEvent):
    """The hold of the job was removed."""

    by: str


@dataclass(frozen=True, slots=True)
class JobEdited(JobEvent):
    """The spec of the job was changed. The event has the whole new spec and the gates that are closed now."""

    spec: JobSpec
    by: str
    changed: tuple[str, ...]
    gates: tuple[Reason, ...] = ()
    met: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    from_queue: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobRelaxed(JobEvent):
    """The job has waited so long that these constraints of its spec (`relax`) do not apply any more."""

    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobPromoted(JobEvent):
    """The job has waited so long that its priority rises to `priority`."""

    priority: int


@dataclass(frozen=True, slots=True)
class PriorityInherited(JobEvent):
    """The job inherits the highest priority of the jobs that wait for it; 0 if none is above its own."""

    priority: int
    heir: str
    """The label of the job whose priority is inherited; empty if there is none."""


@dataclass(frozen=True, slots=True)
class StartEstimated(JobEvent):
    """An estimate of the start of a waiting job was shown to a user; it is scored when the job starts."""

    kind: str
    start: float


@dataclass(frozen=True, slots=True)
class DeadlineAtRisk(JobEvent):
    """With present plans the job starts too late for its deadline; doubted=False: not any more."""

    doubted: bool


@dataclass(frozen=True, slots=True)
class DependencyDecided(JobEvent):
    """The dependency with this index in the job's spec is met, or (met=False) can never be met."""

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
    """A gate was opened. The job enters the queue when all of its gates are open."""

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
    """Plans expect the job to end this many seconds after its start; None: at its time limit."""
    profile: str = ""
    """The profile that placed the job; empty on a cluster without profiles."""


@dataclass(frozen=True, slots=True)
class PredictionOutlived(JobEvent):
    """The job runs longer than predicted. Plans now use this run time in seconds; None: the time limit."""

    planned_s: float | None


@dataclass(frozen=True, slots=True)
class MemberReady(JobEvent):
    """One member of a gang is ready and waits at the barrier for the other members."""

    attempt: int
    node: str


@dataclass(frozen=True, slots=True)
class AttemptStarted(JobEvent):
    """The attempt's processes on one node have started."""

    attempt: int
    node: str
    pid: int | None = None

    @property
    def pids(self) -> Mapping[str, int | None]:
        """The process id by node, in the form of MembersStarted.pids."""
        return {self.node: self.pid}


@dataclass(frozen=True, slots=True)
class CheckpointSaved(JobEvent):
    """A running attempt has saved a checkpoint."""

    attempt: int
    node: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class AttemptExited(JobEvent):
    """The attempt's processes on one node have ended, and the allocation there is free.

    `why` names the cause of the end, for example `time_limit`; it is empty if the program simply exited.
    """

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
        """The exit by node, in the form of MembersExited.exits."""
        return {self.node: self}


@dataclass(frozen=True, slots=True)
class MembersStarted(JobEvent):
    """Several members of a gang have started. `pids` has the process id on each node."""

    attempt: int
    pids: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class Exit:
    """How a gang member ended. The fields have the same meaning as in AttemptExited."""

    code: int | None = None
    signal: int | None = None
    why: str = ""
    cpu_s: float = 0.0
    max_rss_mib: int = 0
    checkpoint: Checkpoint | None = None
    use: GpuUse | None = None


@dataclass(frozen=True, slots=True)
class MembersExited(JobEvent):
    """Several members of a gang have ended. `exits` has the exit on each node."""

    attempt: int
    exits: Mapping[str, Exit]


@dataclass(frozen=True, slots=True)
class GpuFaultNoted(JobEvent):
    """A GPU that an attempt holds had a fault; `own` is True if the attempt caused the fault."""

    attempt: int
    node: str
    fault: str
    own: bool = False


@dataclass(frozen=True, slots=True)
class IdleNoted(JobEvent):
    """All GPUs of the job have been idle since `since`. The job is ended at `until` if they stay idle."""

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

    `until` is the latest end of the attempt. Plans give its resources to other jobs from that time on.
    """

    reason: Reason
    by: str
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Victim:
    """A job that is stopped for another job. It loses `gpu_hours` of work, done since its last checkpoint."""

    job: int
    gpu_hours: float
    attempt: int = 0
    nodes: tuple[str, ...] = ()
    """The nodes that an elastic job gives up; empty: the whole job is stopped."""


@dataclass(frozen=True, slots=True)
class PreemptionPlanned(JobEvent):
    """The job is nominated for these allocations and starts there when the victims have ended.

    `by` is the time by which all victims have ended.
    """

    allocations: tuple[Allocation, ...]
    quality: int
    victims: tuple[Victim, ...]
    strategy: str
    by: float

    def leaving(self, node: str) -> list[int]:
        """The ids of the victims that leave this node."""
        return [victim.job for victim in self.victims if not victim.nodes or node in victim.nodes]


@dataclass(frozen=True, slots=True)
class PreemptionDropped(JobEvent):
    """The nomination of the job was dropped: the job cannot or must not start on these nodes any more."""

    why: str


@dataclass(frozen=True, slots=True)
class MovePlanned(JobEvent):
    """A running job is moved: it was ordered to save a checkpoint and end, and gets `allocations` after that.

    `until` is the latest end of the present attempt. The move frees resources for the job `for_job`, or
    empties the node `node`.
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
    """The job was not moved. It is nominated for its former `allocations`; without any, it only waits."""

    attempt: int
    why: str
    allocations: tuple[Allocation, ...] = ()


@dataclass(frozen=True, slots=True)
class JobShrunk(JobEvent):
    """An elastic job gives up these nodes for other jobs: its members on them were ordered to stop."""

    attempt: int
    nodes: tuple[str, ...]
    by: str
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class JobGrew(JobEvent):
    """An elastic job got more nodes, because no job was waiting."""

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
    """The attempt has ended but the job has not: it is queued again at its former position."""

    attempt: int
    reason: Reason
    detail: str = ""
    again_at: float | None = None
    """The job is kept out of the queue until this time."""
    restart: bool = False
    """True: the requeue counts against the limit of the job's restart policy."""


@dataclass(frozen=True, slots=True)
class JobEnded(JobEvent):
    """The job has ended with this outcome. No later event is about this job."""

    state: JobState
    reason: Reason
    detail: str = ""
    code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class NodeAdded(NodeEvent):
    """A node was added or its configuration changed. `host` and `by` are set if an operator did it."""

    labels: Mapping[str, str] = field(default_factory=dict)
    host: HostSpec | None = None
    by: str = ""
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRemoved(NodeEvent):
    """The node was removed from the cluster. All jobs on it had ended before."""

    by: str


@dataclass(frozen=True, slots=True)
class NodeMarked(NodeEvent):
    """An operator set labels or taints of the node, or removed them (None). A taint is named `key:Effect`."""

    by: str
    labels: Mapping[str, str | None] = field(default_factory=dict)
    taints: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Overcommit:
    """Factors by which the CPU and memory of a node may be given out more than once."""

    cpu: float = 1.0
    memory: float = 1.0

    def of(self, facts: NodeFacts) -> tuple[int, int]:
        """The CPU (in 1/1000 CPU) and memory (in MiB) that jobs may hold on a node with this hardware."""
        return round(facts.cpu_milli * self.cpu), round(facts.memory_mib * self.memory)


AS_IT_IS = Overcommit()


@dataclass(frozen=True, slots=True)
class NodeJoined(NodeEvent):
    """An agent connected. The event has the hardware of its node and the overcommit factors."""

    facts: NodeFacts
    boot_id: str
    version: str = ""
    overcommit: Overcommit = AS_IT_IS


@dataclass(frozen=True, slots=True)
class NodeWentAway(NodeEvent):
    """The link to the agent of the node is gone. Running jobs go on; no job is placed on the node."""

    why: str


@dataclass(frozen=True, slots=True)
class NodeWentDown(NodeEvent):
    """The node has been away longer than `down_after_s` seconds. Plans do not use it any more."""


@dataclass(frozen=True, slots=True)
class NodeDeclaredLost(NodeEvent):
    """An operator declared that no process runs on the node any more. Its jobs end or are queued again."""

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
    """A user has a process on a GPU that no job started, and is charged `rate` billing units per hour."""

    node: str
    uuid: str
    user: str
    pid: int
    command: str
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class OffQueueProcessEnded(ClusterEvent):
    """The last off-queue process of the user on this GPU has ended."""

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
    """The quota that an operator had set was removed; the configuration applies again."""

    scope: str
    name: str
    by: str


@dataclass(frozen=True, slots=True)
class ShareSet(ClusterEvent):
    """An organisation, project or user (`project/user`) got another weight or limits; None: unchanged."""

    share: str
    weight: float | None
    by: str
    soft: float | None = None
    hard: float | None = None


@dataclass(frozen=True, slots=True)
class ReservationMade(ClusterEvent):
    """Nodes were reserved for a time."""

    asked: ReservationSpec
    nodes: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True)
class ReservationBegan(ClusterEvent):
    """The reservation has begun."""

    reservation: str


@dataclass(frozen=True, slots=True)
class ReservationEnded(ClusterEvent):
    """The reservation has ended. `again_at` is the start of its next occurrence; None: there is none."""

    reservation: str
    again_at: float | None = None


@dataclass(frozen=True, slots=True)
class ReservationCancelled(ClusterEvent):
    """The reservation was cancelled."""

    reservation: str
    by: str


@dataclass(frozen=True, slots=True)
class RebalancePlanned(ClusterEvent):
    """The rebalancer decided to move jobs: to start a job, empty a node, gather GPUs or balance loads."""

    proposal: str
    kind: str
    by: str
    moves: tuple[int, ...]
    gpu_hours: float
    """The cost of the moves in GPU-hours."""
    worth: float
    """The gain of the moves in GPU-hours."""
    for_job: int | None = None
    node: str = ""


@dataclass(frozen=True, slots=True)
class ConfigApplied(ClusterEvent):
    """The controller uses another configuration from now on."""

    digest: str
    by: str
    changed: tuple[str, ...] = ()
    """The changed keys without values, because every user may read events and values may be secret."""
    policy: str = ""
    """The policy tables of scheduler.toml, as JSON."""
    overcommit: Overcommit | None = None
    """The new overcommit factors of all nodes; None: unchanged."""


@dataclass(frozen=True, slots=True)
class JournalSealed(ClusterEvent):
    """The journal entries up to number `through` are deleted. `digest` is the hash of entry `through`."""

    through: int
    digest: str


@dataclass(frozen=True, slots=True)
class PluginFailed(ClusterEvent):
    """A plugin raised an exception or returned an invalid value. It is not called for the rest of the cycle.

    With `given_up` it is not called until the controller restarts.
    """

    kind: str
    name: str
    why: str
    given_up: bool


Event = JobEvent | NodeEvent | ClusterEvent
"""Any event. Each class above with one of these three bases is one kind of event."""

JOURNAL_NAMES = {
    "OffQueueProcessStarted": "StrangerCame",
    "OffQueueProcessEnded": "StrangerLeft",
    "DeadlineAtRisk": "DeadlineDoubted",
}
"""The classes that were renamed, each with the old name that the journal, the API and saved traces keep."""

_KIND_OF: dict[type[Any], str] = {
    event: JOURNAL_NAMES.get(name, name)
    for name, event in list(globals().items())
    if isinstance(event, type) and issubclass(event, Event) and event.__bases__ != (object,)
}
KINDS: dict[str, type[Any]] = {kind: event for event, kind in _KIND_OF.items()}
"""For each kind of journal entry the class of its events."""


def kind_of(event: Event) -> str:
    """The kind of the event in the journal: the name of its class, or the old name if that was renamed."""
    return _KIND_OF[type(event)]


def body_of(event: Event) -> str:
    """The event as JSON, for the body of its journal entry."""
    return dumps(encode(event))


def event_of(kind: str, body: str) -> Event:
    """The event of a journal entry. Raises KeyError for an unknown kind and Malformed for an invalid body."""
    event: Event = decode(KINDS[kind], json.loads(body))
    return event
