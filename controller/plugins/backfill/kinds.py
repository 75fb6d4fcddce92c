"""The kinds of backfill: which jobs may start while a job before them waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.framework.interfaces import Reserves


class _InQueueOrder:
    """Tries the jobs behind the first waiting job in queue order."""

    __slots__ = ()

    starts_behind: ClassVar[bool] = True
    in_queue_order: ClassVar[bool] = True

    def candidate_key(self, runtime_s: float) -> float:
        """The same for all jobs: queue order decides."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Easy(_InQueueOrder):
    """EASY backfill: jobs start if they do not delay the first waiting job."""

    name: ClassVar[str] = "easy"
    reserves: ClassVar[Reserves] = Reserves.FIRST_JOB
    max_delay_s: ClassVar[None] = None
    depth: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class EasySjbf(Easy):
    """As easy, but the shortest job is tried first."""

    name: ClassVar[str] = "easy-sjbf"
    in_queue_order: ClassVar[bool] = False

    def candidate_key(self, runtime_s: float) -> float:
        """The expected run time."""
        return runtime_s


@dataclass(frozen=True, slots=True)
class Aggressive(_InQueueOrder):
    """As easy, but backfilled jobs may delay the first waiting job by `max_delay_s` in total."""

    name: ClassVar[str] = "aggressive"
    reserves: ClassVar[Reserves] = Reserves.FIRST_JOB
    depth: ClassVar[None] = None

    max_delay_s: float = 600.0
    """The most seconds by which backfilled jobs may delay the first waiting job, in total."""


@dataclass(frozen=True, slots=True)
class Conservative(_InQueueOrder):
    """Every waiting job has a reservation. Jobs start if they delay no job before them."""

    name: ClassVar[str] = "conservative"
    reserves: ClassVar[Reserves] = Reserves.ALL_JOBS
    max_delay_s: ClassVar[None] = None

    depth: int | None = None
    """The most waiting jobs that get a reservation; None for all."""


@dataclass(frozen=True, slots=True)
class Greedy(Easy):
    """No reservations: every job starts that fits. A large job may wait forever behind small ones."""

    name: ClassVar[str] = "greedy"
    reserves: ClassVar[Reserves] = Reserves.NO_JOB


@dataclass(frozen=True, slots=True)
class NoBackfill(Easy):
    """No job starts while a job before it waits. The reservation of the first says when that job starts."""

    name: ClassVar[str] = "none"
    starts_behind: ClassVar[bool] = False
