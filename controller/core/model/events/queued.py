"""Events about waiting jobs: submit, hold, edit, priority, dependencies and gates."""

from __future__ import annotations

from dataclasses import dataclass

from controller.core.model.events.event import JobEvent
from controller.core.model.services import Replica
from wire.job.spec import JobSpec
from wire.names import Reason


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
    workload: int | None = None
    """The workload to which the job belongs, and the name of its task there."""
    task: str = ""


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
