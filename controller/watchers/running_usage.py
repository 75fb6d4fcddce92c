"""GPU use of running attempts, as their agents report it; in memory only.

An agent reports every running attempt of its node each time, so a report replaces the one before it. The end
of an attempt brings its final figures into the journal, and these are shown from then on. After a restart of
the controller the figures come back with the next report of each agent.
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
        """Replace the report of the node. An empty report says nothing about use."""
        known = {each.job: each for each in uses}
        if known:
            self._by_node[node] = known

    def forget(self, node: str) -> None:
        """Drop the report of a node that was removed."""
        self._by_node.pop(node, None)

    def of(self, job: Job) -> Mapping[str, GpuUse]:
        """The use so far of the job's present attempt, by node. Members that have ended are not in it."""
        found = {}
        for node, member in job.members.items():
            reported = self._by_node.get(node, {}).get(job.id)
            if reported is not None and reported.attempt == job.attempt and member.ended_at is None:
                found[node] = reported.use
        return found
