"""Events about waiting jobs: submits, holds, edits, priorities, dependencies, and gates (reasons that keep a
job out of the queue).
"""

from __future__ import annotations

from controller.core.model.dataclass import dataclass
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
    """The closed gates: the reasons, such as a dependency, that keep the job out of the queue."""
    met: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    """Indices of dependencies in the job's spec. `met`: dependencies that are met already. `lost`:
    dependencies that can never be met.
    """
    from_queue: tuple[str, ...] = ()
    """The keys of the node labels that the job's queue requires in addition to the job's own node
    selector.
    """
    replica: Replica | None = None
    """The service, and the number of the replica in the service. None for a job that a user submitted."""
    workload: int | None = None
    """The id of the workload to which the job belongs; None for a job in no workload."""
    task: str = ""
    """The name of the workload's task to which the job belongs."""


@dataclass(frozen=True, slots=True)
class JobHeld(JobEvent):
    """A hold was set on the job. The job does not start until a user or operator releases it."""

    by: str
    operator: bool = False
    """True: an operator held the job of another user, so only operators may release it."""


@dataclass(frozen=True, slots=True)
class JobReleased(JobEvent):
    """The hold of the job was removed."""

    by: str


@dataclass(frozen=True, slots=True)
class JobEdited(JobEvent):
    """The spec of the job was changed. The event contains the whole new spec, and the closed gates: reasons,
    such as a dependency, that keep the job out of the queue.
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
    """The job has waited so long that the constraints `dropped` (the field `relax` of its spec) no longer
    apply.
    """

    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobPromoted(JobEvent):
    """The job has waited so long that its priority rises to `priority`."""

    priority: int


@dataclass(frozen=True, slots=True)
class PriorityInherited(JobEvent):
    """The job now inherits the priority `priority`, the highest of the jobs that wait for it. `priority` is 0
    if the priority in the job's spec is at least as high.
    """

    priority: int
    heir: str
    """The display id of the job that lends the priority; empty if no priority is inherited."""


@dataclass(frozen=True, slots=True)
class StartEstimated(JobEvent):
    """The start of a waiting job was estimated with the method `kind`. When the job starts, the estimate is
    compared with the real start time.
    """

    kind: str
    start: float


@dataclass(frozen=True, slots=True)
class WaitAlarmed(JobEvent):
    """A waiting job has waited much longer than is usual in its queue for jobs with a similar number of GPUs.
    The event is recorded at most once for a job.
    """

    waited_s: float
    usual_s: float
    """The median wait, in seconds, of jobs in the same queue with a similar number of GPUs."""


@dataclass(frozen=True, slots=True)
class DeadlineAtRisk(JobEvent):
    """The outlook of a waiting job with a deadline has changed: the job will now probably miss its deadline
    (`doubted` is True), or can meet it again (`doubted` is False).
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
    """The file system path that now exists and for which the job has waited; empty for a
    dependency on a job.
    """


@dataclass(frozen=True, slots=True)
class GateClosed(JobEvent):
    """A gate of the job was closed. A closed gate is a reason, such as a dependency, that keeps the job out
    of the queue. `gate` names the reason.
    """

    gate: Reason


@dataclass(frozen=True, slots=True)
class GateOpened(JobEvent):
    """A gate of the job was opened: one reason that kept the job out of the queue is gone. The job enters the
    queue when all of its gates are open.
    """

    gate: Reason
