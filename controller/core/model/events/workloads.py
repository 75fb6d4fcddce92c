"""Events about workloads: tasks that were submitted together."""

from __future__ import annotations

from dataclasses import dataclass

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
    """A user ordered new jobs in place of jobs of a workload that have failed, or that were cancelled because
    of them. A JobQueued event for each new job follows.
    """

    workload: int
    by: str
    replaced: tuple[int, ...]
    """The ids of the jobs that have a new job in their place."""
    cancelled: bool = False
    """True: jobs that users have cancelled were replaced, too."""
