"""The `local` quota provider: reads quotas from scheduler.toml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from wire.cluster.quota import ANY_NAME, GpuLimit, Limits, Quota, gpus_or_percent

_MEMORY = re.compile(r"(\d{1,9})([MGT])(i?B)?")
_MIB = {"M": 1, "G": 1024, "T": 1024 * 1024}


@dataclass(frozen=True, slots=True)
class QuotaAmounts:
    """The limits in one quota table of scheduler.toml; None means no limit."""

    cpus: float | None = None
    memory: str | None = None
    gpus: float | str | None = None
    """A number of GPUs, or a percentage of the GPUs of the cluster, such as "50%"."""
    running: int | None = None
    gpu_hours: float | None = None
    gpus_per_model: Mapping[str, float | str] = field(default_factory=dict)
    """For each GPU model, the limit as a number of GPUs or as a percentage of the GPUs of this model."""

    def __post_init__(self) -> None:
        for name in ("cpus", "running", "gpu_hours"):
            if (getattr(self, name) or 0) < 0:
                raise ValueError(f"{name} must not be negative")
        _gpu_limit(self.gpus)
        for limit in self.gpus_per_model.values():
            _gpu_limit(limit)
        if self.memory is not None and not _MEMORY.fullmatch(self.memory):
            raise ValueError(f'cannot read {self.memory!r} as memory; write "512G", "2T" or "800M"')

    def limits(self, queued: int | None = None) -> Limits:
        """Return the limits in the engine's units, such as thousandths of a CPU and MiB of memory. `queued`
        is the limit on waiting jobs, which soft limits do not have; None means no limit.
        """
        match = _MEMORY.fullmatch(self.memory) if self.memory is not None else None
        gpus = _gpu_limit(self.gpus)
        return Limits(
            cpu_milli=None if self.cpus is None else round(self.cpus * 1000),
            memory_mib=None if match is None else int(match[1]) * _MIB[match[2]],
            running=self.running,
            queued=queued,
            gpu_hours=self.gpu_hours,
            gpus=gpus.gpus,
            gpus_percent=gpus.percent,
            gpus_per_model={model: _gpu_limit(each) for model, each in self.gpus_per_model.items()},
        )


def _gpu_limit(gpus: float | str | None) -> GpuLimit:
    """Convert a limit on GPUs, such as 8 or "50%", to a GpuLimit. Raise ValueError for an invalid limit."""
    if isinstance(gpus, str):
        if "%" not in gpus:
            raise ValueError(f'gpus must be a number or a percentage, such as 8 or "50%", not {gpus!r}')
        return GpuLimit(percent=float(gpus_or_percent(gpus)))
    if gpus is not None and gpus < 0:
        raise ValueError("gpus must not be negative")
    return GpuLimit(gpus)


@dataclass(frozen=True, slots=True)
class QuotaTable(QuotaAmounts):
    """The hard and soft limits of one user, project or queue."""

    queued: int | None = None
    soft: QuotaAmounts = field(default_factory=QuotaAmounts)

    def __post_init__(self) -> None:
        QuotaAmounts.__post_init__(self)
        if (self.queued or 0) < 0:
            raise ValueError("queued must not be negative")

    @property
    def quota(self) -> Quota:
        return Quota(self.limits(self.queued), self.soft.limits())


@dataclass(frozen=True, slots=True)
class BorrowTable:
    """The amounts that a project may borrow above its hard limits, while other projects do not use them."""

    cpus: float | None = None
    memory: str | None = None
    gpus: float | str | None = None
    running: int | None = None
    gpus_per_model: Mapping[str, float | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.amounts()

    def amounts(self) -> QuotaAmounts:
        """Return the amounts that may be borrowed. Raise ValueError for an invalid amount."""
        per_model = self.gpus_per_model
        return QuotaAmounts(self.cpus, self.memory, self.gpus, self.running, gpus_per_model=per_model)


@dataclass(frozen=True, slots=True)
class ProjectQuotaTable(QuotaTable):
    """The limits of a project, and the amounts that the project may borrow."""

    borrow: BorrowTable = field(default_factory=BorrowTable)

    @property
    def quota(self) -> Quota:
        return Quota(self.limits(self.queued), self.soft.limits(), self.borrow.amounts().limits())


@dataclass(frozen=True, slots=True)
class LocalQuotas:
    """The quota tables of users, projects and queues by name. The table "*" is for every tenant without its
    own table.
    """

    name: ClassVar[str] = "local"
    users: Mapping[str, QuotaTable] = field(default_factory=dict)
    projects: Mapping[str, ProjectQuotaTable] = field(default_factory=dict)
    queues: Mapping[str, QuotaTable] = field(default_factory=dict)

    def quota(self, scope: str, name: str) -> Quota | None:
        """Return the quota of this user, project or queue; None without a quota table in scheduler.toml."""
        table = self._tables(scope).get(name)
        return None if table is None else table.quota

    def names(self, scope: str) -> Iterator[str]:
        return (name for name in self._tables(scope) if name != ANY_NAME)

    def _tables(self, scope: str) -> Mapping[str, QuotaTable]:
        return {"user": self.users, "project": self.projects, "queue": self.queues}[scope]
