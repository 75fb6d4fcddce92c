"""Events about attempts, from the placement to the end of the attempt and of the job."""

from __future__ import annotations

from collections.abc import Mapping

from controller.core.model.allocation import Allocation
from controller.core.model.dataclass import dataclass
from controller.core.model.events.event import JobEvent
from controller.core.model.time_limits import ShortLimit
from wire.agent.reports import Checkpoint, GpuUse
from wire.job.steps import Step
from wire.names import JobState, Reason


@dataclass(frozen=True, slots=True)
class JobPlaced(JobEvent):
    """The job got allocations for a new attempt. The processes of the attempt have not started yet."""

    attempt: int
    allocations: tuple[Allocation, ...]
    quality: int
    predicted_s: float | None = None
    """The run time in seconds that was predicted from similar earlier jobs."""
    planned_s: float | None = None
    """Scheduling plans expect the job to end this many seconds after its start. None: plans expect the end
    after the time limit and the grace time.
    """
    profile: str = ""
    """The scheduler profile that placed the job; empty on a cluster without profiles."""
    short: ShortLimit | None = None
    """The time limit of the attempt, if this limit is shorter than the limit that the job requests."""


@dataclass(frozen=True, slots=True)
class PredictionOutlived(JobEvent):
    """The job has run longer than predicted. Scheduling plans now expect a run time of `planned_s` seconds.
    If `planned_s` is None, the plans expect the end after the time limit and the grace.
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
        """A dictionary from the name of the event's node to the process id of the attempt there, as in
        MembersStarted.
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
    `max_rss_mib` is the peak memory of the largest process, `memory_mib` that of all processes together.
    `failure` is the name of the failure class, such as an out-of-memory error. It is empty if no class was
    found.
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
    memory_mib: int = 0
    failure: str = ""

    @property
    def exits(self) -> Mapping[str, AttemptExited]:
        """A dictionary from the name of the event's node to this event. The event has the fields of `Exit`,
        so the dictionary can be used like `MembersExited.exits`.
        """
        return {self.node: self}


@dataclass(frozen=True, slots=True)
class StepsRecorded(JobEvent):
    """The attempt has run these job steps (commands started by srun). The event is recorded when the attempt
    ends on its first node.
    """

    attempt: int
    node: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class MembersStarted(JobEvent):
    """Several members of a gang have started. `pids` contains the process id of each, by node name."""

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
    memory_mib: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class MembersExited(JobEvent):
    """Several members of a gang have ended. `exits` contains the end of each (`Exit`), by node name."""

    attempt: int
    exits: Mapping[str, Exit]


@dataclass(frozen=True, slots=True)
class GpuFaultNoted(JobEvent):
    """A GPU of a running attempt had a fault. `own` is True if the attempt's own program caused the fault."""

    attempt: int
    node: str
    fault: str
    own: bool = False


@dataclass(frozen=True, slots=True)
class IdleNoted(JobEvent):
    """All GPUs of the job have been idle since the time `since`. If the GPUs stay idle, the job is ended at
    the time `until`. If `until` is None, the job is not ended.
    """

    attempt: int
    since: float
    until: float | None = None


@dataclass(frozen=True, slots=True)
class IdleEnded(JobEvent):
    """The job is no longer flagged as idle: one of its GPUs is busy again, or one of its nodes has
    disconnected.
    """

    attempt: int


@dataclass(frozen=True, slots=True)
class IdleKept(JobEvent):
    """The user `by` has ordered that the job is neither flagged nor ended because of idle GPUs before the
    time `until`. `why` is the reason that the user gave.
    """

    attempt: int
    by: str
    until: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class EndWarned(JobEvent):
    """The owner of a running job was warned that the job will be stopped at the time `ends_at`. With the
    reason PREEMPTED, the job may be preempted from this time on.

    `detail` names the cause, such as the drain of a node.
    """

    attempt: int
    ends_at: float
    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class HealthChanged(JobEvent):
    """The health checks of a running attempt now pass (`healthy` is True) or now fail. `why` is the message
    of the last failed check.
    """

    attempt: int
    healthy: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class StopRequested(JobEvent):
    """The attempt was ordered to stop. The attempt ends when all of its processes have ended.

    `until` is the latest time at which the attempt ends. Scheduling plans count its resources as free from
    `until` on. None: this time is not known.
    """

    reason: Reason
    by: str
    until: float | None = None


BATCH_ENDED = "the end of its batch command"
"""The value of `JobShrunk.by` for a batch job whose command has ended on the first node."""


@dataclass(frozen=True, slots=True)
class JobShrunk(JobEvent):
    """A job gives up some of its nodes. An elastic job gives up nodes for other jobs. A batch job gives up
    its other nodes when its command on the first node has ended. The job's processes on the given-up nodes
    were ordered to stop.
    """

    attempt: int
    nodes: tuple[str, ...]
    by: str
    gpu_hours: float

    @property
    def preempts(self) -> bool:
        """True if other jobs take the nodes. False if the job no longer needs the nodes."""
        return self.by != BATCH_ENDED


@dataclass(frozen=True, slots=True)
class JobGrew(JobEvent):
    """A running elastic job got more nodes, because no job was waiting for these nodes."""

    attempt: int
    allocations: tuple[Allocation, ...]


@dataclass(frozen=True, slots=True)
class JobPreempted(JobEvent):
    """The attempt was ended so that another job could run. `by` names this other job, or the user that
    ordered the preemption.
    """

    attempt: int
    by: str
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class JobRequeued(JobEvent):
    """The attempt has ended, and the job is queued again. The job keeps its age and therefore its position in
    the queue.
    """

    attempt: int
    reason: Reason
    detail: str = ""
    again_at: float | None = None
    """The job is kept out of the queue until this time. None: the job enters the queue at once."""
    restart: bool = False
    """True: this requeue counts as a restart, and the job's restart policy limits the number of restarts."""
    healthy: bool = False
    """True: the attempt ran long enough to count as healthy. The wait before the next restart (backoff) then
    starts again from its shortest value.
    """


@dataclass(frozen=True, slots=True)
class JobEnded(JobEvent):
    """The job has ended with this outcome. No later event is about this job."""

    state: JobState
    reason: Reason
    detail: str = ""
    code: int | None = None
    signal: int | None = None
