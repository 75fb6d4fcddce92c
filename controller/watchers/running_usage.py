"""Keeps the latest reports of agents on the GPU, CPU and memory usage of running attempts.

Each report of an agent covers all running attempts of its node, so a new report replaces the earlier report.
When an attempt ends, its final usage is written to the journal, and commands show this usage. After a restart
of the controller, the usage of running attempts is missing until their agents have sent the next reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controller.core.model.job import Job
from wire.agent.reports import AttemptUse


class RunningUsage:
    """The latest report of each node on the usage of its running attempts."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[int, AttemptUse]] = {}

    def report(self, node: str, uses: Iterable[AttemptUse]) -> None:
        """Replace the stored report of the node. Ignore a report without attempts."""
        known = {each.job: each for each in uses}
        if known:
            self._by_node[node] = known

    def forget(self, node: str) -> None:
        """Delete the report of a node that was removed."""
        self._by_node.pop(node, None)

    def of(self, job: Job) -> Mapping[str, AttemptUse]:
        """Return the usage of the job's current attempt until now, by node. Members of a gang that have ended
        are left out.
        """
        found = {}
        for node, member in job.members.items():
            reported = self._by_node.get(node, {}).get(job.id)
            if reported is not None and reported.attempt == job.attempt and member.ended_at is None:
                found[node] = reported
        return found
