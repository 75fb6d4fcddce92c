"""GPU use of running attempts as their agents report it. It is kept only in memory.

Each report of an agent covers all running attempts of its node, so a report replaces the one before it. At
the end of an attempt its final figures are written to the journal and shown from then on. After a restart of
the controller, the figures are available again after the next report of each agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controller.core.model.job import Job
from wire.agent.frames import AttemptUse, GpuUse


class RunningUsage:
    """The latest report of each node."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[int, AttemptUse]] = {}

    def report(self, node: str, uses: Iterable[AttemptUse]) -> None:
        """Replace the report of the node. An empty report is ignored."""
        known = {each.job: each for each in uses}
        if known:
            self._by_node[node] = known

    def forget(self, node: str) -> None:
        """Delete the report of a node that was removed."""
        self._by_node.pop(node, None)

    def of(self, job: Job) -> Mapping[str, GpuUse]:
        """The use so far by the job's current attempt, by node. Gang members that have ended are left out."""
        found = {}
        for node, member in job.members.items():
            reported = self._by_node.get(node, {}).get(job.id)
            if reported is not None and reported.attempt == job.attempt and member.ended_at is None:
                found[node] = reported.use
        return found
