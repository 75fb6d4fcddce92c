"""Places several jobs on a copy of the nodes, to check that all these jobs fit at the same time."""

from __future__ import annotations

from collections.abc import Iterable

from controller.core.cluster.node_table import Bools
from controller.core.cluster.nodes import Nodes
from controller.core.framework.interfaces import SchedulingPolicy
from controller.core.model.allocation import Allocation
from controller.core.model.job import NO_JOB, Job
from controller.core.model.request import ResourceRequest
from controller.core.placement.placer import Placement, Placer


class TrialPlacements:
    """Finds placements on a copy of the nodes, and reserves the placements on this copy. The real nodes stay
    unchanged.

    Running jobs keep their resources on the copy. So a placement on the copy also fits in the cluster while
    the jobs to be moved still hold their old nodes.
    """

    def __init__(self, nodes: Nodes, pipeline: SchedulingPolicy) -> None:
        self._nodes = nodes.copy()
        self._placer = Placer(self._nodes, pipeline)
        self._reserved: list[tuple[Job, str]] = []
        self._blocked: list[str] = []

    def find(self, ask: ResourceRequest, barred: Bools | None = None) -> Placement | None:
        """Return the best placement that uses no `barred` node. Return None if the request does not fit."""
        return self._placer.find(ask, barred)

    def reserve(self, job: Job, allocations: Iterable[Allocation], leaving: Iterable[int]) -> None:
        """Reserve the allocations for the job. The running jobs in `leaving` may still hold the resources."""
        leavers = list(leaving)
        for allocation in allocations:
            self._nodes.claim(job.id, allocation, leavers)
            self._reserved.append((job, allocation.node))
            if job.ask.part.social:
                self._nodes.job_affinity.add(job.ask.part, allocation.node)

    def block(self, allocation: Allocation) -> None:
        """Mark the resources of `allocation` as used on the copy of the nodes, so that no later placement
        uses them.
        """
        self._nodes.claim(NO_JOB, allocation, ())
        self._blocked.append(allocation.node)

    def reset(self) -> None:
        """Undo all calls of `reserve` and `block`."""
        for node in self._blocked:
            self._nodes.unclaim(NO_JOB, node)
        self._blocked.clear()
        for job, node in reversed(self._reserved):
            self._nodes.unclaim(job.id, node)
            if job.ask.part.social:
                self._nodes.job_affinity.remove(job.ask.part, node)
        self._reserved.clear()
