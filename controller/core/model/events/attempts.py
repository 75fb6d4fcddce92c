"""Events about attempts, from the placement to the end of the attempt and of the job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.core.model.allocation import Allocation
from controller.core.model.events.event import JobEvent
from controller.core.model.time_limits import ShortLimit
from wire.agent.reports import Checkpoint, GpuUse
from wire.job.steps import Step
from wire.names import JobState, Reason


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
    `max_rss_mib` is the peak memory of the largest process, `memory_mib` that of all processes together.
    `failure` is the name of the failure class (error_classes.py); empty if there is none.
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
        """The end of the attempt on the event's node, as a dictionary with one entry (node name: event)."""
        return {self.node: self}


@dataclass(frozen=True, slots=True)
class StepsRecorded(JobEvent):
    """The attempt has run these steps (srun). The event comes with the end of the attempt on its first
    node.
    """

    attempt: int
    node: str
    steps: tuple[Step, ...]


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
    memory_mib: int = 0
    failure: str = ""


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
