"""The kinds of backfill: rules for starting jobs while a job ahead of them in the queue waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.framework.interfaces import Reserves


class _InQueueOrder:
    """Base class for kinds of backfill that try waiting jobs in queue order."""

    __slots__ = ()

    starts_behind: ClassVar[bool] = True
    in_queue_order: ClassVar[bool] = True

    def candidate_key(self, runtime_s: float) -> float:
        """Return 0 for every job. Jobs with equal keys are tried in queue order."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Easy(_InQueueOrder):
    """The `easy` backfill: a job may start before jobs that are ahead of it in the queue, if its start does
    not delay the first waiting job.
    """

    name: ClassVar[str] = "easy"
    reserves: ClassVar[Reserves] = Reserves.FIRST_JOB
    max_delay_s: ClassVar[None] = None
    depth: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class EasySjbf(Easy):
    """The `easy-sjbf` backfill: like `easy`, but jobs with a short expected run time are tried first
    (shortest job first).
    """

    name: ClassVar[str] = "easy-sjbf"
    in_queue_order: ClassVar[bool] = False

    def candidate_key(self, runtime_s: float) -> float:
        """Return the expected run time in seconds. The job with the shortest expected run time is tried
        first."""
        return runtime_s


@dataclass(frozen=True, slots=True)
class Aggressive(_InQueueOrder):
    """The `aggressive` backfill: like `easy`, but backfilled jobs may delay the first waiting job by up to a
    fixed time in total.
    """

    name: ClassVar[str] = "aggressive"
    reserves: ClassVar[Reserves] = Reserves.FIRST_JOB
    depth: ClassVar[None] = None

    max_delay_s: float = 600.0
    """Backfilled jobs together may delay the first waiting job by at most this many seconds."""


@dataclass(frozen=True, slots=True)
class Conservative(_InQueueOrder):
    """The `conservative` backfill: every waiting job has a backfill reservation (a planned start), and no job
    may delay a job that is ahead of it in the queue.
    """

    name: ClassVar[str] = "conservative"
    reserves: ClassVar[Reserves] = Reserves.ALL_JOBS
    max_delay_s: ClassVar[None] = None

    depth: int | None = None
    """The most waiting jobs that get a backfill reservation; None means all waiting jobs. A job without a
    reservation may start if it delays no reservation.
    """


@dataclass(frozen=True, slots=True)
class Greedy(Easy):
    """The `greedy` backfill: every job that fits starts at once. A large job may wait forever, because
    smaller jobs behind it in the queue keep starting.
    """

    name: ClassVar[str] = "greedy"
    reserves: ClassVar[Reserves] = Reserves.NO_JOB


@dataclass(frozen=True, slots=True)
class NoBackfill(Easy):
    """The `none` backfill: no job starts while a job ahead of it in the queue waits."""

    name: ClassVar[str] = "none"
    starts_behind: ClassVar[bool] = False
