"""Quotas as scheduler.toml states them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from wire.quota import EVERYBODY, Limits, Quota

_MEMORY = re.compile(r"(\d{1,9})([MGT])(i?B)?")
_MIB = {"M": 1, "G": 1024, "T": 1024 * 1024}


@dataclass(frozen=True, slots=True)
class Amounts:
    """What one table says; what it leaves out is not limited."""

    cpus: float | None = None
    memory: str | None = None
    gpus: float | None = None
    running: int | None = None
    gpu_hours: float | None = None

    def __post_init__(self) -> None:
        for name in ("cpus", "gpus", "running", "gpu_hours"):
            if (getattr(self, name) or 0) < 0:
                raise ValueError(f"{name} must not be negative")
        if self.memory is not None and not _MEMORY.fullmatch(self.memory):
            raise ValueError(f'cannot read {self.memory!r} as memory; write "512G", "2T" or "800M"')

    def limits(self, queued: int | None = None) -> Limits:
        """The same in the units of jobs."""
        match = _MEMORY.fullmatch(self.memory) if self.memory is not None else None
        return Limits(
            cpu_milli=None if self.cpus is None else round(self.cpus * 1000),
            memory_mib=None if match is None else int(match[1]) * _MIB[match[2]],
            gpus=self.gpus,
            running=self.running,
            queued=queued,
            gpu_hours=self.gpu_hours,
        )


@dataclass(frozen=True, slots=True)
class Table(Amounts):
    """The hard limits of one tenant, and its soft ones."""

    queued: int | None = None
    soft: Amounts = field(default_factory=Amounts)

    def __post_init__(self) -> None:
        Amounts.__post_init__(self)
        if (self.queued or 0) < 0:
            raise ValueError("queued must not be negative")

    @property
    def quota(self) -> Quota:
        """The same as a quota."""
        return Quota(self.limits(self.queued), self.soft.limits())


@dataclass(frozen=True, slots=True)
class Borrowed:
    """What a project may have beyond its hard limits while others leave it unused."""

    cpus: float | None = None
    memory: str | None = None
    gpus: float | None = None
    running: int | None = None

    def __post_init__(self) -> None:
        Amounts(self.cpus, self.memory, self.gpus, self.running)


@dataclass(frozen=True, slots=True)
class ProjectTable(Table):
    """The same for a project."""

    borrow: Borrowed = field(default_factory=Borrowed)

    @property
    def quota(self) -> Quota:
        """The same as a quota."""
        lent = Amounts(self.borrow.cpus, self.borrow.memory, self.borrow.gpus, self.borrow.running)
        return Quota(self.limits(self.queued), self.soft.limits(), lent.limits())


@dataclass(frozen=True, slots=True)
class Local:
    """Tables by name; "*" holds for each that has no table of its own."""

    name: ClassVar[str] = "local"
    users: Mapping[str, Table] = field(default_factory=dict)
    projects: Mapping[str, ProjectTable] = field(default_factory=dict)
    queues: Mapping[str, Table] = field(default_factory=dict)

    def quota(self, scope: str, name: str) -> Quota | None:
        """What is stated for this one."""
        table = self._tables(scope).get(name)
        return None if table is None else table.quota

    def names(self, scope: str) -> Iterator[str]:
        """All that have a table of their own."""
        return (name for name in self._tables(scope) if name != EVERYBODY)

    def _tables(self, scope: str) -> Mapping[str, Table]:
        return {"user": self.users, "project": self.projects, "queue": self.queues}[scope]
