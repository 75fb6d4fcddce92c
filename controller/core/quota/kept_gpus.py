"""Kept GPUs: a number of free GPUs that a queue keeps for its next jobs ([queues.NAME] keep_free_gpus)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from controller.core.cluster.node_table import NodeTable
from controller.core.model.request import PerNodeRequest
from controller.core.quota.queue_rules import QueueRule
from wire.names import WHOLE_GPU, Reason
from wire.text import counted, duration, printable


@dataclass(frozen=True, slots=True)
class GpusKept:
    """The reason why a job may not start: it would leave fewer GPUs free than the queue `queue` keeps for its
    jobs.
    """

    queue: str
    kept: int
    free: int
    now: float
    until: float
    """The time at which the queue stops keeping GPUs free; infinity if the queue keeps them at all times."""
    withheld: bool = True
    """Whether the job would fit on the free resources if the queue kept no GPUs."""
    only_this_job: ClassVar[bool] = False

    @property
    def reason(self) -> Reason:
        """KEPT_FREE if the job would fit now; otherwise RESOURCES, because other jobs use the GPUs."""
        return Reason.KEPT_FREE if self.withheld else Reason.RESOURCES

    def __str__(self) -> str:
        end = "" if math.isinf(self.until) else f" for another {duration(self.until - self.now)}"
        kept = counted(self.kept, "free GPU")
        return f"queue {printable(self.queue)!r} keeps {kept} for its jobs{end}; {self.free} are free now"


class KeptGpus:
    """Keeps GPUs free for the jobs of some queues, such as notebooks, which must start within minutes.

    Algorithm of `bars`
    1. Only jobs in queues with a lower priority than the queue that keeps GPUs can be kept from starting.
    2. Of these jobs, only narrow ones are kept from starting: jobs on one node that do not need all GPUs of a
       node. If a wider job had to wait for two more GPUs, whole nodes would stay idle.
    3. A narrow job may not start if fewer GPUs than `keep_free_gpus` would then be free.

    The queue keeps a number of free GPUs and not particular GPUs. As soon as a job of the queue has taken one
    of them, the next GPU that becomes free is kept.

    Cost: O(nodes) after a change of the nodes, otherwise O(queues that keep GPUs).

    Example: queue `interactive` keeps 2 GPUs free from 08:00 to 18:00. At 12:00 three GPUs are free: one
    sweep of 1 GPU starts, the next one waits. A notebook starts at once, and then 1 GPU is free. The next two
    GPUs that become free stay free, unless another notebook starts.
    """

    def __init__(self, rules: Mapping[str, QueueRule]) -> None:
        self._keepers = [(name, rule) for name, rule in rules.items() if rule.keep_free_gpus]
        self._free = 0
        self._counted_at: tuple[int, int] | None = None
        """The versions of the nodes at which `_free` was counted."""

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
    ) -> GpusKept | None:
        """Return why a job may not start now; None if no queue keeps GPUs from the job.

        `priority` is that of the job's queue. The job needs `part` on each of `nodes` nodes. `versions` must
        change when GPUs of `table` become free or busy, because the count of free GPUs is cached.
        """
        if not part.wants_gpus or nodes > 1 or part.gpus >= table.gpu_count.max(initial=1):
            return None
        for name, rule in self._keepers:
            hours = rule.keep_free_hours
            if rule.priority <= priority or (hours is not None and not hours.is_open(now)):
                continue
            free = self._free_gpus(table, versions)
            if free - max(part.gpus, 1) < rule.keep_free_gpus:
                until = math.inf if hours is None else hours.next_closing(now)
                return GpusKept(name, rule.keep_free_gpus, free, now, until)
        return None

    def _free_gpus(self, table: NodeTable, versions: tuple[int, int]) -> int:
        """Return the number of GPUs that are wholly free on nodes that take jobs."""
        if self._counted_at != versions:
            self._free = int((table.gpu_free[table.open] == WHOLE_GPU).sum())
            self._counted_at = versions
        return self._free
