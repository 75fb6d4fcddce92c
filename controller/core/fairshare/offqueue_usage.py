"""Off-queue use: the use of GPUs by processes that belong to no job. Records the users and the times, and
charges the tenants of these users.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from controller.core.fairshare.share_tree import SharePath, ShareTree
from controller.core.fairshare.usage import FairshareConfig
from controller.core.model.inputs.agent_inputs import OffQueueProcessGone, OffQueueProcessSeen
from wire.agent.reports import GpuProcess

MAX_KEPT = 5_000
"""At most this many ended off-queue uses are kept in memory. Older uses are only in the journal."""

OffQueueKey = tuple[str, str, str]
"""(name of the node, UUID of the GPU, name of the user)."""

_UNKNOWN_USER = "?"
"""The user name that agents report for a process that ended before the agent found its owner. Such a process
is ignored.
"""


@dataclass(frozen=True, slots=True)
class OffQueueUse:
    """The use of one GPU by a user's processes that belong to no job. `rate` is the charge in billing units
    per hour.
    """

    node: str
    uuid: str
    user: str
    pid: int
    command: str
    since: float
    rate: float = 0.0
    until: float | None = None

    def gpu_hours(self, since: float, until: float) -> float:
        """Return the GPU-hours of this use from `since` to `until`. The whole GPU is counted."""
        end = until if self.until is None else min(until, self.until)
        return max(0.0, end - max(since, self.since)) / 3_600


@dataclass(slots=True)
class OffQueueUsage:
    """The uses of GPUs by processes that belong to no job. Contains all uses that have not ended, and the
    last MAX_KEPT ended uses. Ended uses are numbered in the order of their ends.
    """

    open: dict[OffQueueKey, OffQueueUse] = field(default_factory=dict)
    over: dict[int, OffQueueUse] = field(default_factory=dict)
    next: int = 1
    touched: dict[str, None] = field(default_factory=dict)
    ended: dict[int, None] = field(default_factory=dict)
    charged: dict[SharePath, None] = field(default_factory=dict)
    """The database rows that the next commit must write: nodes in `touched`, ended uses in `ended`, and
    shares in `charged`.
    """

    def begin(self, use: OffQueueUse, shares: ShareTree) -> None:
        """Record that a user began to use a GPU outside of jobs. From `use.since` on, charge the user in the
        project of the setting `off_queue`, if there is one.
        """
        self.open[use.node, use.uuid, use.user] = use
        self.touched[use.node] = None
        self._charge(use, use.rate, use.since, shares)

    def end(self, key: OffQueueKey, at: float, shares: ShareTree) -> None:
        """Record that a user no longer uses a GPU outside of jobs, and stop the charge. Keep only the last
        MAX_KEPT ended uses.
        """
        use = self.open.pop(key)
        self.touched[use.node] = None
        self.over[self.next] = replace(use, until=at)
        self.ended[self.next] = None
        self.next += 1
        for number in list(self.over)[: max(0, len(self.over) - MAX_KEPT)]:
            del self.over[number]
            self.ended[number] = None
        self._charge(use, -use.rate, at, shares)

    def leave(self, node: str, at: float, shares: ShareTree) -> None:
        """End all off-queue uses (uses of GPUs without a job) on a node that has disconnected, because their
        processes may have ended.
        """
        for key in self.on(node):
            self.end(key, at, shares)

    def on(self, node: str) -> list[OffQueueKey]:
        """Return the keys of the off-queue uses on a node that have not ended. An off-queue use is the use of
        a GPU outside of jobs.
        """
        return [key for key in self.open if key[0] == node]

    def within(self, since: float, until: float) -> Iterator[OffQueueUse]:
        """Yield the off-queue uses that overlap the time from `since` to `until`, the newest first. An
        off-queue use is the use of a GPU outside of jobs.
        """
        for use in (*reversed(self.open.values()), *reversed(self.over.values())):
            if use.since < until and (use.until is None or use.until > since):
                yield use

    def _charge(self, use: OffQueueUse, rate: float, at: float, shares: ShareTree) -> None:
        if use.rate:
            path = shares.path(shares.sharing.off_queue or "", use.user)
            shares.add(path)
            shares.change_rate(path, rate, at)
            self.charged.update((path[:depth], None) for depth in range(len(path) + 1))


def offqueue_rate(sharing: FairshareConfig, model: str) -> float:
    """Return the charge for a GPU that is used without a job, in billing units per hour. Return 0 if the
    setting `off_queue` names no project to charge.
    """
    return sharing.gpu_price(model) if sharing.off_queue else 0.0


def offqueue_inputs(
    node: str, processes: Sequence[GpuProcess], known: OffQueueUsage
) -> Iterator[OffQueueProcessSeen | OffQueueProcessGone]:
    """Yield an input for each off-queue use that began or ended on a node. An off-queue use is the use of a
    GPU outside of jobs. `processes` are the GPU processes that the agent reports. `known` contains the uses
    that were recorded before.
    """
    seen = {
        (node, each.uuid, each.user): each
        for each in reversed(processes)
        if each.job is None and each.user != _UNKNOWN_USER
    }
    for key in known.on(node):
        if key not in seen:
            yield OffQueueProcessGone(*key)
    for key, each in seen.items():
        if key not in known.open:
            yield OffQueueProcessSeen(*key, each.pid, each.command)
