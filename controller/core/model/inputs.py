"""The inputs that the engine handles: commands, reports of agents, and the clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from controller.core.model.dataclass import dataclass
from wire.agent.reports import AttemptStatus, Hello
from wire.cluster.hosts import HostSpec
from wire.cluster.quota import Quota
from wire.cluster.reservation import ReservationSpec
from wire.job.placement.affinity import Taint
from wire.job.spec import JobSpec
from wire.names import GpuHealth, JobState, TroubleKind
from wire.workload.spec import WorkloadSpec


@dataclass(frozen=True, slots=True)
class Input:
    """The base class of all inputs of the engine: commands, reports of agents and the clock."""


@dataclass(frozen=True, slots=True)
class JobCommand(Input):
    """A command of the user `by` on one job."""

    job: int
    by: str


@dataclass(frozen=True, slots=True)
class NodeCommand(Input):
    """A command of the operator `by` on one node."""

    node: str
    by: str


@dataclass(frozen=True, slots=True)
class GpuInput(Input):
    node: str
    uuid: str


@dataclass(frozen=True, slots=True)
class Requester:
    """The user that sends a command: a submit, an edit, a hold or a release. The rights of the user determine
    the ceilings of requests, the projects that the user may use, and the holds that the user may release. For
    an admin, both `operator` and `admin` are True.
    """

    user: str
    operator: bool = False
    admin: bool = False


@dataclass(frozen=True, slots=True)
class Submit(Input):
    """Queue a job or an array. A second submit with the same idempotency key (`key`) queues nothing and
    returns the jobs of the first submit.
    """

    spec: JobSpec
    user: str
    key: str = ""
    known: Mapping[str, JobState] = field(default_factory=dict)
    """The final states, by display id, of jobs that the submit names in dependencies. Only ended jobs that
    are no longer in memory are listed. The sender of the input has read the states from the store.
    """
    asker: Requester | None = None
    """The user that sends the submit; None in a simulation, which allows everything."""


@dataclass(frozen=True, slots=True)
class SubmitWorkload(Input):
    """Queue all jobs of a workload, or none. See Submit for `key` (idempotency key), `known` and `asker`."""

    asked: WorkloadSpec
    user: str
    key: str = ""
    known: Mapping[str, JobState] = field(default_factory=dict)
    asker: Requester | None = None


@dataclass(frozen=True, slots=True)
class CancelWorkload(Input):
    """Cancel all jobs of a workload that have not ended."""

    workload: int
    by: str


@dataclass(frozen=True, slots=True)
class RetryWorkload(Input):
    """Queue new jobs that replace jobs of a workload: failed jobs, and jobs that were cancelled because
    another job had failed. With `cancelled`, also replace jobs that users have cancelled.
    """

    workload: int
    by: str
    cancelled: bool = False
    asker: Requester | None = None


@dataclass(frozen=True, slots=True)
class Cancel(JobCommand):
    """Cancel a job that has not ended."""


@dataclass(frozen=True, slots=True)
class Edit(JobCommand):
    """Change fields of a job's spec. `changes` contains the new JSON values by field name; None resets a
    field to its default.
    """

    changes: Mapping[str, Any]
    known: Mapping[str, JobState] = field(default_factory=dict)
    asker: Requester | None = None
    """`known` contains the final states, by display id, of ended jobs on which the changed job depends.
    `asker` is the user that sends the change; None in a simulation, which allows everything.
    """
    delays_nobody: bool = False
    """True: the edit extends the time limit of a running job, and a forecast shows that this delays no
    planned start of another job.
    """


@dataclass(frozen=True, slots=True)
class Hold(JobCommand):
    """Hold a queued job, so that the job does not start until a release."""

    asker: Requester | None = None
    """The user that sends the command; None in a simulation, which allows everything."""


@dataclass(frozen=True, slots=True)
class Release(JobCommand):
    """Release a held job. `asker` is the user that releases the job; None in a simulation, which allows
    everything.
    """

    asker: Requester | None = None


@dataclass(frozen=True, slots=True)
class Requeue(JobCommand):
    """End the attempt of a job and queue the job again."""


@dataclass(frozen=True, slots=True)
class Preempt(JobCommand):
    """Preempt a running job. The job is queued again with its old age, so the job keeps its position in the
    queue. With `hold`, the job is also held, and does not start before its release.
    """

    hold: bool = False


@dataclass(frozen=True, slots=True)
class KeepIdle(JobCommand):
    """Do not flag or end a running job for `for_s` seconds because its GPUs are idle. `why` is the reason
    that the user gave.
    """

    for_s: float
    why: str
    asker: Requester | None = None
    """The user that sends the command; None in a simulation, in which everything is allowed."""


@dataclass(frozen=True, slots=True)
class AddNode(Input):
    """Add a node. The node comes from the configuration, or from an operator. In the second case `host`
    contains the address of its host.
    """

    node: str
    labels: Mapping[str, str] = field(default_factory=dict)
    host: HostSpec | None = None
    by: str = ""
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class PinKey(Input):
    """Pin the SSH host key of a node, in the format of OpenSSH."""

    node: str
    key: str
    by: str


@dataclass(frozen=True, slots=True)
class SealJournal(Input):
    """Record that the journal entries up to number `through` will be deleted. `digest` is the hash of entry
    `through`.
    """

    through: int
    digest: str


@dataclass(frozen=True, slots=True)
class RemoveNode(NodeCommand):
    """Remove a node from the cluster."""


@dataclass(frozen=True, slots=True)
class MarkNode(NodeCommand):
    """Set or remove labels and taints of a node. A label or taint with the value None is removed. The key of
    a taint is `key:Effect`, for example `gpu:NoSchedule`.
    """

    labels: Mapping[str, str | None] = field(default_factory=dict)
    taints: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Drain(NodeCommand):
    """Drain a node. If `empty_by` is None, place no more jobs on the node.

    With `empty_by` (a timed drain), the node must be empty at this time. Jobs that end before `empty_by` may
    still start. Jobs that would still run at `empty_by` are moved or ended.
    """

    why: str = ""
    empty_by: float | None = None


@dataclass(frozen=True, slots=True)
class Resume(NodeCommand):
    """Place jobs on a drained node again."""


@dataclass(frozen=True, slots=True)
class SetQuota(Input):
    """Set limits of a user, project or queue. Limits that the command does not name stay unchanged."""

    scope: str
    name: str
    quota: Quota
    by: str


@dataclass(frozen=True, slots=True)
class UnsetQuota(Input):
    """Remove the limits that an operator set for a tenant. The limits of the configuration then apply
    again.
    """

    scope: str
    name: str
    by: str


@dataclass(frozen=True, slots=True)
class Reserve(Input):
    """Reserve nodes for a time. With `anyway`, make the reservation even if jobs may still run on the nodes
    when the reservation begins.
    """

    spec: ReservationSpec
    by: str
    anyway: bool = False


@dataclass(frozen=True, slots=True)
class Rebalance(Input):
    """Carry out the rebalancing proposal with the name `proposal`, if the proposal is still valid. Without a
    name, carry out all present proposals.
    """

    by: str
    proposal: str = ""


@dataclass(frozen=True, slots=True)
class RestartService(Input):
    """Restart all replicas of a service, one after the other."""

    service: str
    by: str


@dataclass(frozen=True, slots=True)
class ScaleService(Input):
    """Set the number of replicas of a service; with None, the number in scheduler.toml applies again."""

    service: str
    replicas: int | None
    by: str


@dataclass(frozen=True, slots=True)
class CancelReservation(Input):
    reservation: str
    by: str


@dataclass(frozen=True, slots=True)
class AgentSaidHello(Input):
    """An agent has connected. Its hello message contains the hardware of its host, and the state of all
    attempts in its records.
    """

    node: str
    hello: Hello


@dataclass(frozen=True, slots=True)
class AgentReported(Input):
    """An agent has reported the state of one attempt."""

    node: str
    status: AttemptStatus


@dataclass(frozen=True, slots=True)
class MembersReported(Input):
    """Agents have reported the state of several members of one gang. The effect is the same as one
    AgentReported input for each member.
    """

    job: int
    attempt: int
    statuses: Mapping[str, AttemptStatus]


@dataclass(frozen=True, slots=True)
class GpuReported(GpuInput):
    """The health of a GPU, taken from a journal entry. Only the replay of a journal sends this input."""

    health: GpuHealth
    why: str = ""
    needs: str = ""
    falls: int = 0
    good: int = 0
    due: float = 0.0
    by: str = ""


@dataclass(frozen=True, slots=True)
class GpuTroubled(GpuInput):
    """An agent reported a fault of a GPU."""

    kind: TroubleKind
    why: str = ""
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class GpuChecked(GpuInput):
    """An agent has checked a GPU that is out of service."""

    ok: bool
    why: str = ""
    lasts: bool = False
    """True if the check failed because the known cause is still present, for example an off-queue process on
    the GPU.
    """


@dataclass(frozen=True, slots=True)
class GpuWasReset(GpuInput):
    """An agent has reset a GPU, or the reset has failed."""

    ok: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class OffQueueProcessSeen(GpuInput):
    """An agent has found a process of a user on a GPU. The process belongs to no job."""

    user: str
    pid: int
    command: str


@dataclass(frozen=True, slots=True)
class OffQueueProcessGone(GpuInput):
    """The user has no more processes outside of jobs on this GPU."""

    user: str


@dataclass(frozen=True, slots=True)
class CordonGpu(Input):
    """Cordon the GPU with this index on the node: place no more jobs on the GPU."""

    node: str
    gpu: int
    by: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class ResumeGpu(Input):
    """Return a cordoned GPU to service. Jobs are placed on the GPU after one passed check."""

    node: str
    gpu: int
    by: str


@dataclass(frozen=True, slots=True)
class GpusIdle(Input):
    """All GPUs of a job have been idle since the time `since`, which is more than `[gpus] idle_after_s`
    seconds ago.
    """

    job: int
    attempt: int
    since: float


@dataclass(frozen=True, slots=True)
class HealthReported(Input):
    """The health checks of an attempt began to pass, or have failed so often in a row that the attempt is
    unhealthy.
    """

    job: int
    attempt: int
    healthy: bool
    why: str = ""
    node: str = ""
    """The node of the agent that sent the report; empty in a simulation."""


@dataclass(frozen=True, slots=True)
class GpusBusy(Input):
    """A GPU of a job is busy again, after all GPUs of the job were reported idle."""

    job: int
    attempt: int


@dataclass(frozen=True, slots=True)
class DataFound(Input):
    """A path in the file system now exists. Jobs that depend on the path can start."""

    path: str


@dataclass(frozen=True, slots=True)
class LinkWentDown(Input):
    """The connection to an agent is lost."""

    node: str
    why: str


@dataclass(frozen=True, slots=True)
class NoteStart(Input):
    """Record an estimated start that was shown to a user, unless a similar estimate is already recorded for
    the job.
    """

    job: int
    kind: str
    start: float


@dataclass(frozen=True, slots=True)
class NoteLongWait(Input):
    """Record that a job has waited much longer than usual. Do nothing if this is already recorded. `usual_s`
    is the median wait in seconds of jobs in the same queue with a similar number of GPUs.
    """

    job: int
    usual_s: float


@dataclass(frozen=True, slots=True)
class WarnOfLimit(Input):
    """The owner of a job was warned that the time limit will end the job. With `window`, the owner was warned
    that the job may be preempted when its predicted run time is over.

    Only the replay of a journal sends this input.
    """

    job: int
    attempt: int
    window: bool = False


@dataclass(frozen=True, slots=True)
class NodeSilent(Input):
    """The controller has received no message from a node for the last `for_s` seconds."""

    node: str
    for_s: float


@dataclass(frozen=True, slots=True)
class DeclareLost(NodeCommand):
    """An operator declares that nothing runs on the node any more."""


@dataclass(frozen=True, slots=True)
class ControllerStarted(Input):
    """The controller has started and loaded its state from the store. `nodes` are the nodes that were
    connected when the controller stopped. No agent is connected yet.
    """

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetShare(Input):
    """Set the weight or limits of the share of an organisation, project or user (`project/user`); None leaves
    a value unchanged.
    """

    share: str
    weight: float | None
    by: str
    soft: float | None = None
    hard: float | None = None


@dataclass(frozen=True, slots=True)
class ApplyConfig(Input):
    """Use another configuration. `pipeline` contains the new scheduling settings. With `pipeline` None, the
    scheduling policy stays unchanged.
    """

    digest: str
    by: str
    pipeline: Any | None = None
    changed: tuple[str, ...] = ()
    """The keys of scheduler.toml whose values differ from before."""
    policy: str = ""
    """The tables that affect scheduling decisions, as JSON. A replay of the journal builds its pipeline from
    these tables.
    """


@dataclass(frozen=True, slots=True)
class Tick(Input):
    """The clock: act on everything that is due by now, and run a scheduling cycle."""
