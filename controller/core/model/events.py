"""Events record what has happened. Only events change the state, and the journal has all events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.core.model.services import Replica
from controller.core.model.time_limits import ShortLimit
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
    job: int
    at: float


@dataclass(frozen=True, slots=True)
class NodeEvent:
    node: str
    at: float


@dataclass(frozen=True, slots=True)
class ClusterEvent:
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
    """`met` has the indices of the dependencies in the spec that are met already, `lost` of those that can
    never be met.
    """
    from_queue: tuple[str, ...] = ()
    """The labels that the job's queue added to the job's selector."""
    replica: Replica | None = None
    """The place of the job in its service; None for a job that was submitted."""


@dataclass(frozen=True, slots=True)
class JobHeld(JobEvent):
    """A hold was set on the job: the job does not start until it is released."""

    by: str
    operator: bool = False
    """True: an operator held the job of another user, so only operators may release it."""


@dataclass(frozen=True, slots=True)
class JobReleased(JobEvent):
    """The hold of the job was removed."""

    by: str


@dataclass(frozen=True, slots=True)
class JobEdited(JobEvent):
    """The spec of the job was changed. The event has the whole new spec, and the closed gates: the reasons,
    such as a dependency, that now keep the job out of the queue.
    """

    spec: JobSpec
    by: str
    changed: tuple[str, ...]
    gates: tuple[Reason, ...] = ()
    met: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    from_queue: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobRelaxed(JobEvent):
    """The job has waited so long that the constraints which its spec names in `relax` no longer apply."""

    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobPromoted(JobEvent):
    """The job has waited so long that its priority rises to `priority`."""

    priority: int


@dataclass(frozen=True, slots=True)
class PriorityInherited(JobEvent):
    """The job inherits the highest priority of the jobs that depend on it. `priority` is 0 if the job's own
    priority is at least as high.
    """

    priority: int
    heir: str
    """The label of the job whose priority is inherited; empty if there is none."""


@dataclass(frozen=True, slots=True)
class StartEstimated(JobEvent):
    """An estimate of a waiting job's start was shown to a user. When the job starts, the stored estimate is
    compared with the real start time.
    """

    kind: str
    start: float


@dataclass(frozen=True, slots=True)
class WaitAlarmed(JobEvent):
    """A waiting job has waited much longer than usual for jobs in its queue with a similar number of GPUs.
    Recorded at most once for a job.
    """

    waited_s: float
    usual_s: float
    """The median wait of the jobs with the same queue and a similar number of GPUs, in seconds."""


@dataclass(frozen=True, slots=True)
class DeadlineAtRisk(JobEvent):
    """A waiting job is now expected to miss its deadline (`doubted` is True), or is no longer expected to
    miss it (False).
    """

    doubted: bool


@dataclass(frozen=True, slots=True)
class DependencyDecided(JobEvent):
    """A dependency of the job is met (`met` is True) or can never be met (`met` is False). `index` is the
    position of the dependency in the spec of the job.
    """

    index: int
    met: bool
    detail: str = ""
    path: str = ""
    """The path that was found; empty for a dependency on a job."""


@dataclass(frozen=True, slots=True)
class GateClosed(JobEvent):
    """A gate of the job was closed: the reason `gate` now keeps the job out of the queue."""

    gate: Reason


@dataclass(frozen=True, slots=True)
class GateOpened(JobEvent):
    """A gate of the job was opened. The job enters the queue when all of its gates are open."""

    gate: Reason


@dataclass(frozen=True, slots=True)
class JobPlaced(JobEvent):
    """A new attempt of the job got its allocations. Its processes have not started yet."""

    attempt: int
    allocations: tuple[Allocation, ...]
    quality: int
    predicted_s: float | None = None
    """The run time in seconds that was predicted from earlier jobs like this one."""
    planned_s: float | None = None
    """Plans expect the job to end this many seconds after its start; None: at its time limit."""
    profile: str = ""
    """The profile that placed the job; empty on a cluster without profiles."""
    short: ShortLimit | None = None
    """The time limit of the attempt, if it is shorter than the job requests."""


@dataclass(frozen=True, slots=True)
class PredictionOutlived(JobEvent):
    """The job has run longer than predicted. Plans now expect that it runs `planned_s` seconds; if
    `planned_s` is None, until its time limit.
    """

    planned_s: float | None


@dataclass(frozen=True, slots=True)
class MemberReady(JobEvent):
    """One member of a gang is ready and waits at the start barrier for the other members."""

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
        """The process id of the attempt on the event's node, as a dictionary with one entry (node name:
        process id).
        """
        return {self.node: self.pid}


@dataclass(frozen=True, slots=True)
class CheckpointSaved(JobEvent):
    attempt: int
    node: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class AttemptExited(JobEvent):
    """The attempt's processes on one node have ended, and the allocation there is free.

    `why` names the cause of the end, for example `time_limit`. It is empty if the program ended by itself.
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
        """The end of the attempt on the event's node, as a dictionary with one entry (node name: event)."""
        return {self.node: self}


@dataclass(frozen=True, slots=True)
class MembersStarted(JobEvent):
    """Several members of a gang have started. `pids` has the process id of each, by node name."""

    attempt: int
    pids: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of one gang member. The fields have the same meaning as in AttemptExited."""

    code: int | None = None
    signal: int | None = None
    why: str = ""
    cpu_s: float = 0.0
    max_rss_mib: int = 0
    checkpoint: Checkpoint | None = None
    use: GpuUse | None = None


@dataclass(frozen=True, slots=True)
class MembersExited(JobEvent):
    """Several members of a gang have ended. `exits` has the exit of each, by node name."""

    attempt: int
    exits: Mapping[str, Exit]


@dataclass(frozen=True, slots=True)
class GpuFaultNoted(JobEvent):
    """A GPU of a running attempt had a fault. `own` is True if the attempt itself caused the fault."""

    attempt: int
    node: str
    fault: str
    own: bool = False


@dataclass(frozen=True, slots=True)
class IdleNoted(JobEvent):
    """All GPUs of the job have been idle since the time `since`. If the GPUs stay idle, the job is ended at
    the time `until`.
    """

    attempt: int
    since: float
    until: float | None = None


@dataclass(frozen=True, slots=True)
class IdleEnded(JobEvent):
    """A GPU of the job is busy again."""

    attempt: int


@dataclass(frozen=True, slots=True)
class EndWarned(JobEvent):
    """The owner of a running job was warned that the job will be told to stop at `ends_at`, for `reason`.

    `detail` names the cause, such as the drain of a node.
    """

    attempt: int
    ends_at: float
    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class HealthChanged(JobEvent):
    """A running attempt has become healthy or unhealthy by its health checks. `why` is the last failure."""

    attempt: int
    healthy: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class StopRequested(JobEvent):
    """The attempt was ordered to stop. It ends when its processes have ended.

    `until` is the latest end of the attempt. Plans count the resources of the attempt as free from that time
    on.
    """

    reason: Reason
    by: str
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Victim:
    """A job that is preempted for another job. `gpu_hours` is the lost work: the work since the victim's last
    checkpoint, or since its start.
    """

    job: int
    gpu_hours: float
    attempt: int = 0
    nodes: tuple[str, ...] = ()
    """The nodes that an elastic job gives up; empty: the whole job is stopped."""
    target: tuple[Allocation, ...] = ()
    quality: int = 0
    """`target` and `quality` are the placement to which the job is moved. If `target` is empty, the job waits
    in the queue after it was stopped.
    """


@dataclass(frozen=True, slots=True)
class PreemptionPlanned(JobEvent):
    """The job is nominated: `allocations` are kept for the job. It starts there when its victims (the jobs
    that are preempted for it) have ended.

    `by` is the time by which all victims have ended.
    """

    allocations: tuple[Allocation, ...]
    quality: int
    victims: tuple[Victim, ...]
    strategy: str
    by: float

    def leaving(self, node: str) -> list[int]:
        """Return the ids of the jobs that are preempted on this node."""
        return [victim.job for victim in self.victims if not victim.nodes or node in victim.nodes]


@dataclass(frozen=True, slots=True)
class PreemptionDropped(JobEvent):
    """The nomination of the job was withdrawn: the allocations are no longer kept for the job, because the
    job cannot or must not start there any more.
    """

    why: str


PREEMPTION = "preemption"
"""The `kind` of a move whose job was preempted for another job. The other kinds are those of rebalancing."""


@dataclass(frozen=True, slots=True)
class MovePlanned(JobEvent):
    """A running job is moved to other nodes: it was ordered to save a checkpoint and end, and starts again in
    `allocations` after that.

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


def move_cause(kind: str, proposal: str) -> str:
    """Return the text that names why a job is moved: a preemption, a timed drain, or a rebalancing
    proposal.
    """
    if not proposal:
        return PREEMPTION if kind == PREEMPTION else f"{kind} of its node"
    return f"rebalancing {proposal}"


@dataclass(frozen=True, slots=True)
class MoveUndone(JobEvent):
    """The move of the job has failed or was cancelled. The job's former `allocations` are kept for it, so
    that it can start there again. If `allocations` is empty, the job waits in the queue.
    """

    attempt: int
    why: str
    allocations: tuple[Allocation, ...] = ()


@dataclass(frozen=True, slots=True)
class JobShrunk(JobEvent):
    """An elastic job gives up some of its nodes for other jobs: its processes on these nodes were ordered to
    stop.
    """

    attempt: int
    nodes: tuple[str, ...]
    by: str
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class JobGrew(JobEvent):
    """A running elastic job got more nodes, because no job was waiting for them."""

    attempt: int
    allocations: tuple[Allocation, ...]


@dataclass(frozen=True, slots=True)
class JobPreempted(JobEvent):
    """The attempt was ended so that another job could run. `by` names this other job, or the operator that
    ordered the preemption.
    """

    attempt: int
    by: str
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class JobRequeued(JobEvent):
    """The attempt has ended, and the job is queued again. The job keeps its age, so that it does not go to
    the end of the queue.
    """

    attempt: int
    reason: Reason
    detail: str = ""
    again_at: float | None = None
    """The job is kept out of the queue until this time."""
    restart: bool = False
    """True: the requeue counts against the limit of the job's restart policy."""
    healthy: bool = False
    """True: the attempt ran so long that earlier restarts no longer make the job's backoff longer."""


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
    """A node was added, or its configuration was changed. `host` and `by` are set if an operator made the
    change, and empty if the change comes from scheduler.toml.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    host: HostSpec | None = None
    by: str = ""
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRemoved(NodeEvent):
    """The node was removed from the cluster. When this happened, no job held resources on the node."""

    by: str


@dataclass(frozen=True, slots=True)
class NodeMarked(NodeEvent):
    """An operator set or removed labels or taints of the node. A label or taint with the value None is
    removed. The key of a taint is `key:Effect`.
    """

    by: str
    labels: Mapping[str, str | None] = field(default_factory=dict)
    taints: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Overcommit:
    """The overcommit factors of a node for CPU and memory. Example: with a CPU factor of 2, jobs may hold 128
    CPUs on a node that has 64.
    """

    cpu: float = 1.0
    memory: float = 1.0

    def of(self, facts: NodeFacts) -> tuple[int, int]:
        """Return (CPU in 1/1000 CPU, memory in MiB) that jobs may hold on a node with hardware `facts`."""
        return round(facts.cpu_milli * self.cpu), round(facts.memory_mib * self.memory)


AS_IT_IS = Overcommit()


@dataclass(frozen=True, slots=True)
class NodeJoined(NodeEvent):
    """An agent connected and sent its hello. The event has the hardware of the node and the overcommit
    factors.
    """

    facts: NodeFacts
    boot_id: str
    version: str = ""
    overcommit: Overcommit = AS_IT_IS


@dataclass(frozen=True, slots=True)
class NodeWentAway(NodeEvent):
    """The connection to the agent of the node is lost. Running jobs continue; no job is placed on the
    node.
    """

    why: str


@dataclass(frozen=True, slots=True)
class NodeWentDown(NodeEvent):
    """The node has been disconnected for longer than `down_after_s` seconds. Backfill and forecasts no longer
    plan starts on the node.
    """


@dataclass(frozen=True, slots=True)
class NodeDeclaredLost(NodeEvent):
    """An operator declared that no process runs on the node any more. The jobs on it count as lost: they end
    or are queued again.
    """

    by: str


@dataclass(frozen=True, slots=True)
class NodeDrained(NodeEvent):
    """The node was drained: no job is placed on it any more. Running jobs continue.

    With `empty_by` (a timed drain), jobs that end before that time may still start, and jobs that would still
    run at that time are moved or ended.
    """

    why: str
    by: str
    empty_by: float | None = None


@dataclass(frozen=True, slots=True)
class DrainBegan(NodeEvent):
    """The time `empty_by` of a timed drain (NodeDrained) has come. No job is placed on the node any more."""


@dataclass(frozen=True, slots=True)
class NodeResumed(NodeEvent):
    """The drain of the node was ended: jobs are placed on it again."""

    by: str


@dataclass(frozen=True, slots=True)
class GpuHealthRecorded(NodeEvent):
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
    """A user has started a process outside of any job on a GPU, and is charged `rate` billing units per
    hour.
    """

    node: str
    uuid: str
    user: str
    pid: int
    command: str
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class OffQueueProcessEnded(ClusterEvent):
    """The user has no more processes on this GPU outside of jobs."""

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
    """The quota that an operator had set for a tenant was removed, so that the configuration applies
    again.
    """

    scope: str
    name: str
    by: str


@dataclass(frozen=True, slots=True)
class BudgetReached(ClusterEvent):
    """A project has used `percent` % of its budget for the month."""

    project: str
    month: str
    percent: int
    used: str
    """The use and the budget, such as `4,000 of 5,000 GPU-hours`."""


@dataclass(frozen=True, slots=True)
class HoursChanged(ClusterEvent):
    """From now on, the quotas and weights of these tables [hours.NAME] are in force, in the order of
    scheduler.toml; empty: those of [quota] and [fair_share] alone.
    """

    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShareSet(ClusterEvent):
    """The weight or the limits of the share of an organisation, project or user (`project/user`) were set.
    None means unchanged.
    """

    share: str
    weight: float | None
    by: str
    soft: float | None = None
    hard: float | None = None


@dataclass(frozen=True, slots=True)
class ServiceRestarted(ClusterEvent):
    """An operator ordered a restart of all replicas of a service, one after the other."""

    service: str
    by: str


@dataclass(frozen=True, slots=True)
class ServiceScaled(ClusterEvent):
    """An operator set the number of replicas of a service. `declared` is the number in scheduler.toml at that
    time. With `replicas` None, the number in scheduler.toml applies again.
    """

    service: str
    replicas: int | None
    declared: int
    by: str


@dataclass(frozen=True, slots=True)
class ReservationMade(ClusterEvent):
    """An operator reserved nodes for a time."""

    asked: ReservationSpec
    nodes: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True)
class ReservationBegan(ClusterEvent):
    """The reserved time of a reservation has begun."""

    reservation: str


@dataclass(frozen=True, slots=True)
class ReservationEnded(ClusterEvent):
    """The reserved time of a reservation has ended. `again_at` is the start of its next occurrence; None if
    there is none.
    """

    reservation: str
    again_at: float | None = None


@dataclass(frozen=True, slots=True)
class ReservationCancelled(ClusterEvent):
    reservation: str
    by: str


@dataclass(frozen=True, slots=True)
class RebalancePlanned(ClusterEvent):
    """The rebalancer decided to move jobs to other nodes: to start a waiting job, to empty a node, to gather
    free GPUs on one node, or to balance the load.
    """

    proposal: str
    kind: str
    by: str
    moves: tuple[int, ...]
    gpu_hours: float
    """The work that the moves lose, in GPU-hours."""
    worth: float
    """The gain from the moves, in GPU-hours."""
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
    """The tables of scheduler.toml that affect scheduling decisions, as JSON."""
    overcommit: Overcommit | None = None
    """The new overcommit factors of all nodes; None: unchanged."""


@dataclass(frozen=True, slots=True)
class JournalSealed(ClusterEvent):
    """The journal entries up to number `through` are deleted. `digest` is the hash of entry `through`."""

    through: int
    digest: str


@dataclass(frozen=True, slots=True)
class PluginFailed(ClusterEvent):
    """A plugin raised an exception or returned an invalid value. The plugin is not called again in this
    scheduling cycle.

    With `given_up` the plugin is not called until the controller restarts.
    """

    kind: str
    name: str
    why: str
    given_up: bool


Event = JobEvent | NodeEvent | ClusterEvent
"""Any event. Each class in this module that derives from JobEvent, NodeEvent or ClusterEvent is one kind of
event.
"""

JOURNAL_NAMES = {
    "OffQueueProcessStarted": "StrangerCame",
    "OffQueueProcessEnded": "StrangerLeft",
    "DeadlineAtRisk": "DeadlineDoubted",
}
"""The renamed event classes, each with the old name that the journal, the API and saved traces still use."""

_KIND_OF: dict[type[Any], str] = {
    event: JOURNAL_NAMES.get(name, name)
    for name, event in list(globals().items())
    if isinstance(event, type) and issubclass(event, Event) and event.__bases__ != (object,)
}
KINDS: dict[str, type[Any]] = {kind: event for event, kind in _KIND_OF.items()}
"""For each kind of journal entry the class of its events."""


def kind_of(event: Event) -> str:
    """Return the name that identifies the kind of the event in the journal: the name of its class, or the
    former name if the class was renamed.
    """
    return _KIND_OF[type(event)]


def body_of(event: Event) -> str:
    """Return the event as JSON, for the body of its journal entry."""
    return dumps(encode(event))


def event_of(kind: str, body: str) -> Event:
    """Return the event of a journal entry. Raises KeyError for an unknown kind, and Malformed for an invalid
    body.
    """
    event: Event = decode(KINDS[kind], json.loads(body))
    return event
