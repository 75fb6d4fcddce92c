"""A limit that a job would exceed, and the sentence for users about this limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.quota.usage_counters import (
    CPU,
    FIRST_MODEL,
    GPU,
    GPU_TIME,
    HOUR_S,
    MEMORY,
    QUEUE_USER,
    QUEUED,
    RUNNING,
    TenantKey,
)
from wire.job.spec import gpus_text
from wire.names import WHOLE_GPU, Reason
from wire.text import memory, printable

GPU_HOUR = WHOLE_GPU * HOUR_S


@dataclass(frozen=True, slots=True)
class LimitExceeded:
    """A limit of a user, project or queue on the resource `kind` (an index in an Amount) that a job would
    exceed, with the used, requested and allowed amounts.
    """

    key: TenantKey
    kind: int
    used: int
    asked: int
    limit: int
    lent: bool = False
    share: str = ""
    """For a limit that is set as a percentage: the limit in percent and the number of GPUs, such as "50 % of
    48". Empty for a limit that is set as a number.
    """
    model: str = ""
    """The GPU model to which the limit applies. Empty for limits on all GPUs or on other resources."""
    reason: ClassVar[Reason] = Reason.QUOTA

    @property
    def only_this_job(self) -> bool:
        """False if the limit also stops all other jobs of the tenant with the same request. True for a limit
        on GPU time, because another job with a shorter time limit may still start.
        """
        return self.kind == GPU_TIME

    def __str__(self) -> str:
        used, limit = amount_text(self.kind, self.used), amount_text(self.kind, self.limit)
        text = f"{self._name}: {used} of {limit} in use{self._asked}"
        return f"{text}, with all that projects may lend each other" if self.lent else text

    @property
    def never_text(self) -> str:
        """Return a sentence for users: the job can never start, because the job alone needs more than the
        limit.
        """
        return f"{self._name} is {amount_text(self.kind, self.limit)}{self._asked}"

    @property
    def _name(self) -> str:
        name = limit_name(self.key, self.kind, self.model)
        return f"{name} ({self.share})" if self.share else name

    @property
    def _asked(self) -> str:
        counted = self.kind in (RUNNING, QUEUED)
        return "" if counted else f", and this asks for {amount_text(self.kind, self.asked)}"


def limit_name(key: TenantKey, kind: int, model: str = "") -> str:
    """Return the name of a limit for a sentence, such as "the quota of user 'ann' on CPUs". `key` is the
    tenant, and `kind` the index of the resource in an Amount.
    """
    scope, name = key
    what = f"{printable(model)} GPUs" if model else _NAMES[kind]
    if scope == QUEUE_USER:
        queue, _, user = name.partition("/")
        return f"the limit of user {printable(user)!r} in queue {printable(queue)!r} on {what}"
    return f"the quota of {scope} {printable(name)!r} on {what}"


_NAMES = {
    CPU: "CPUs",
    MEMORY: "memory",
    GPU: "GPUs",
    RUNNING: "running jobs",
    QUEUED: "queued jobs",
    GPU_TIME: "GPU-hours",
}


def amount_text(kind: int, amount: int) -> str:
    """Return an amount of the resource `kind` for a sentence. Example: 2,500 thousandths of a CPU
    give "2.5".
    """
    if kind == CPU:
        return f"{amount / 1000:g}"
    if kind == MEMORY:
        return memory(amount)
    if kind == GPU or kind >= FIRST_MODEL:
        return gpus_text(amount / WHOLE_GPU)
    return f"{amount / GPU_HOUR:.4g}" if kind == GPU_TIME else str(amount)
