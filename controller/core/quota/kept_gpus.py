"""Kept GPUs: a number of free GPUs that a queue keeps for its next jobs ([queues.NAME] keep_free_gpus)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from controller.core.cluster.node_table import NodeTable
from controller.core.model.request import PerNodeRequest
from controller.core.quota.queue_rules import QueueRule
from wire.names import WHOLE_GPU, Reason
from wire.text import counted, duration, printable

Unreserved = Callable[[float, float], Mapping[int, int]]
"""A function that returns, by row number of the node, how many of the node's free GPUs no backfill
reservation needs. Its arguments are a duration in seconds and the present time: only reservations that need
GPUs within this duration count. Nodes without reservations are left out.
"""


@dataclass(frozen=True, slots=True)
class GpusKept:
    """The reason why a job may not start: it would leave fewer free GPUs than the queue `queue` keeps for its
    own jobs (`kept`).
    """

    queue: str
    kept: int
    free: int
    reserved: int
    """The number of free GPUs that do not count, because a backfill reservation needs them within the longest
    time limit of `queue`.
    """
    preemptible: int
    """The number of GPUs that count as free, because jobs of `queue` may preempt the scavengers (jobs of the
    lowest priority) on these GPUs.
    """
    now: float
    until: float
    """The time at which the queue stops keeping GPUs free; infinity if the queue keeps them at all times."""
    withheld: bool = True
    """True if the job fits on the resources that are free now, so that it waits only because of the kept
    GPUs.
    """
    only_this_job: ClassVar[bool] = False

    @property
    def reason(self) -> Reason:
        """Return KEPT_FREE if the job would fit now. Otherwise return RESOURCES, because other jobs use the
        GPUs.
        """
        return Reason.KEPT_FREE if self.withheld else Reason.RESOURCES

    def __str__(self) -> str:
        end = "" if math.isinf(self.until) else f" for another {duration(self.until - self.now)}"
        kept = counted(self.kept, "free GPU")
        reserved = f", {self.reserved} of them reserved for waiting jobs" if self.reserved else ""
        held = f", and {self.preemptible} are used by scavengers" if self.preemptible else ""
        free = f"{self.free} are free now{reserved}{held}"
        return f"queue {printable(self.queue)!r} keeps {kept} for its jobs{end}; {free}"


class KeptGpus:
    """Keeps GPUs free for the jobs of some queues, such as notebooks, which must start within minutes.

    Algorithm of `bars`
    1. A queue keeps GPUs only from jobs in queues with a lower priority.
    2. The rule applies only to narrow jobs: jobs on one node that request fewer GPUs than the largest node
       has. It does not apply to wider jobs, because whole nodes would stay idle if a wide job had to wait for
       two more GPUs.
    3. A narrow job may not start if its start would leave fewer than `keep_free_gpus` free GPUs. A free GPU
       does not count if a backfill reservation needs it within the longest time limit of the queue, because a
       job with this time limit could not use the GPU. A GPU of a scavenger that jobs of the queue may preempt
       counts as free if its node has no backfill reservation.

    The queue keeps a number of free GPUs and not particular GPUs. When a job of the queue takes a free GPU,
    the next GPU that becomes free is kept.

    Cost: O(nodes) after a change of the nodes, O(queues that keep GPUs) without a change.

    Example: queue `interactive` keeps 2 GPUs free from 08:00 to 18:00. At 12:00 three GPUs are free. One
    1-GPU job of another queue starts, and the next one waits. A notebook starts at once, and then 1 GPU is
    free. The next GPU that becomes free stays free, unless another notebook starts.
    """

    def __init__(self, rules: Mapping[str, QueueRule]) -> None:
        self._keepers = [(name, rule) for name, rule in rules.items() if rule.keep_free_gpus]
        self._free: list[int] = []
        """The number of wholly free GPUs of each node that takes jobs, by row number."""
        self._counted_at: tuple[int, int] | None = None
        """The versions of the node table (the argument `versions` of `bars`) for which `_free` was
        counted.
        """

    def __bool__(self) -> bool:
        return bool(self._keepers)

    def bars(
        self,
        priority: int,
        part: PerNodeRequest,
        nodes: int,
        table: NodeTable,
        versions: tuple[int, int],
        now: float,
        unreserved: Unreserved,
        preemptible: Mapping[int, int],
    ) -> GpusKept | None:
        """Return why a job may not start now; None if no queue keeps GPUs from the job.

        `priority` is the priority of the job's queue. The job needs `part` on each of `nodes` nodes.
        `versions` must change when GPUs of `table` become free or busy, because the count of free GPUs is
        cached. `unreserved` is described at `Unreserved`. `preemptible` contains, by row number of the node,
        the number of GPUs that jobs of the keeping queue can get by preemption.
        """
        if not part.wants_gpus or nodes > 1 or part.gpus >= table.gpu_count.max(initial=1):
            return None
        for name, rule in self._keepers:
            hours = rule.keep_free_hours
            if rule.priority <= priority or (hours is not None and not hours.is_open(now)):
                continue
            free = self._free_gpus(table, versions)
            limit_s = rule.max_time_limit_s or rule.default_time_limit_s or math.inf
            beside = unreserved(limit_s, now)
            reserved = sum(max(0, free[row] - left) for row, left in beside.items())
            held = sum(gpus for row, gpus in preemptible.items() if row not in beside)
            if sum(free) + held - reserved - max(part.gpus, 1) < rule.keep_free_gpus:
                until = math.inf if hours is None else hours.next_closing(now)
                return GpusKept(name, rule.keep_free_gpus, sum(free), reserved, held, now, until)
        return None

    def _free_gpus(self, table: NodeTable, versions: tuple[int, int]) -> list[int]:
        """Return the number of wholly free GPUs of each node, by row number. A node that takes no jobs
        has 0.
        """
        if self._counted_at != versions:
            self._free = ((table.gpu_free == WHOLE_GPU).sum(axis=1) * table.open).tolist()
            self._counted_at = versions
        return self._free
