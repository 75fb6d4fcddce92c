"""Events about workloads: tasks that were submitted together."""

from __future__ import annotations

from controller.core.model.dataclass import dataclass
from controller.core.model.events.event import ClusterEvent
from wire.workload.spec import WorkloadSpec


@dataclass(frozen=True, slots=True)
class WorkloadSubmitted(ClusterEvent):
    """A workload was accepted. A JobQueued event for each of its jobs follows."""

    workload: int
    asked: WorkloadSpec
    user: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class WorkloadRetried(ClusterEvent):
    """A user retried a workload. New jobs replace failed jobs, and jobs that were cancelled because another
    job had failed. A JobQueued event for each new job follows.
    """

    workload: int
    by: str
    replaced: tuple[int, ...]
    """The ids of the jobs that new jobs have replaced."""
    cancelled: bool = False
    """True: jobs that users had cancelled were also replaced."""
