"""Reserves quota for waiting jobs whose tenant (user, project or queue) is at a limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from controller.core.backfill.start_rules.start_limits import StartLimits
from controller.core.model.job import Job
from controller.core.quota.limit_exceeded import LimitExceeded, limit_name
from controller.core.quota.usage_counters import (
    CPU,
    FIRST_MODEL,
    GPU,
    GPU_TIME,
    MEMORY,
    QUEUED,
    RUNNING,
    Amount,
    TenantKey,
)
from controller.core.state.state import State
from wire.names import Reason
from wire.text import duration

KINDS = (CPU, MEMORY, GPU, RUNNING)
"""The kinds of resources for which quota is reserved, in addition to the GPUs of single models. No GPU time
is reserved, because its use falls as time passes and not when a job ends.
"""
Limit = tuple[TenantKey, int, bool]
"""A limit as (tenant, kind of resource, shared). `shared` is True for the limit on what all projects together
may use; the tenant is then ("project", "").
"""


@dataclass(frozen=True, slots=True)
class QuotaReserved:
    """The reason why a job may not start: the quota that it needs is reserved for another job."""

    job: str
    """The display id of the job that has the reservation."""
    key: TenantKey
    kind: int
    model: str
    """The GPU model that the quota limits; empty if the quota limits another resource."""
    wait_s: float
    """Seconds until the reserved start of the job that has the reservation."""
    reason: ClassVar[Reason] = Reason.QUOTA
    only_this_job: ClassVar[bool] = True
    """True, because another job with the same request and a shorter time limit may start."""

    def __str__(self) -> str:
        name = limit_name(self.key, self.kind, self.model)
        return f"{name} is reserved for job {self.job}, which it allows to start in {duration(self.wait_s)}"


@dataclass(slots=True)
class QuotaReservation:
    """The quota of one limit that is reserved for the waiting job `job`. From `starts_at` on, the limit
    allows the start of this job.

    `spare` is the part of the quota that is still unused after the job has started.
    """

    job: int
    starts_at: float
    spare: int


class QuotaReservations:
    """For each reached limit, a reservation of quota for the first waiting job that the limit keeps from
    starting.

    Without these reservations a large job could wait at a limit for ever, because smaller jobs of the same
    tenant use every amount that becomes free. The algorithm is that of EASY backfill (easy_reservation.py),
    with a quota in place of the nodes.

    Algorithm
    1. In a cycle that tries all jobs, `reserve` is called for each job over a limit, in queue order. The
       first job of each limit gets the reservation.
    2. Go through the running jobs of the tenant in the order of their planned ends, until the ended jobs free
       enough quota. The last of these ends is `starts_at`. `spare` is the amount that is free at `starts_at`
       and that the waiting job does not need.
    3. `delay_of`: a later job of the tenant may start if it ends by `starts_at`, or if it needs at most
       `spare`. When a job starts, `take` subtracts from `spare` the amount that the job still holds at
       `starts_at`.
    4. If the ends of all running jobs do not free enough quota, there is no reservation.

    A project that borrows is limited by the unused quota of all projects together. Only jobs that borrow
    count for a reservation of this limit, because every project may use its own quota at any time.

    Cost: O(running jobs) in a cycle with a job over a limit, otherwise nothing.

    Example: project `vision` may hold 16 GPUs and holds 15: job 1 has 8 until 10:00, job 2 has 7 until 11:00.
    Job 3 needs 16 GPUs, so it can start at 11:00, and `spare` is 0. At 9:00 a 1-GPU job with a time limit of
    one hour may start. A 1-GPU job with a time limit of three hours may not.
    """

    def __init__(self, state: State, limits: StartLimits, runtime: Callable[[Job], float]) -> None:
        self._state = state
        self._limits = limits
        self._runtime = runtime
        self._by_limit: dict[Limit, QuotaReservation] = {}
        self._ends: dict[TenantKey, list[tuple[float, Amount]]] | None = None
        """For each tenant, the planned end of each running job, and the amounts that the job frees. None: not
        computed yet.
        """
        self._version = -1
        """The value of `Quotas.version` when the reservations were made. When the version changes, the
        reservations are no longer valid.
        """

    def __bool__(self) -> bool:
        return bool(self._by_limit)

    def clear(self) -> None:
        """Drop all reservations. Call this at the beginning of a cycle that tries all jobs."""
        self._by_limit.clear()
        self._ends = None
        self._version = self._state.quotas.version

    def reserve(self, job: Job, over: LimitExceeded, now: float) -> None:
        """Reserve quota for a job that may not start because of the limit `over`. Reserve nothing if this
        limit already has a reservation, or if it is a limit on waiting jobs or on GPU time.
        """
        limit = over.key if not over.lent else ("project", ""), over.kind, over.lent
        if over.kind in (QUEUED, GPU_TIME) or limit in self._by_limit:
            return
        missing = over.used + over.asked - over.limit
        keys = self._state.quotas.lenders(over.kind) if over.lent else (over.key,)
        ends = sorted(end for key in keys for end in self._ends_by_tenant().get(key, ()))
        for end, amount in ends:
            missing -= amount[over.kind]
            if missing <= 0:
                self._by_limit[limit] = QuotaReservation(job.id, max(end, now), -missing)
                return

    def delay_of(self, job: Job, now: float) -> QuotaReserved | None:
        """Return the first quota reservation that a start of the job would delay; None if it would delay no
        reservation.
        """
        if not self._by_limit or self._version != self._state.quotas.version:
            return None
        need = self._limits.need(job)
        for key, kind, found in self._concerning(job, need, now + self._runtime(job)):
            if need[kind] > found.spare:
                label = self._state.jobs[found.job].label
                model = self._state.quotas.model_of(kind)
                return QuotaReserved(label, key, kind, model, max(0.0, found.starts_at - now))
        return None

    def take(self, job: Job, now: float) -> None:
        """Record in the quota reservations that a job is about to start.

        If the job will still run at a reserved start, the quota that the job uses is subtracted from the
        `spare` of this reservation. Call this before the job starts.
        """
        if self._by_limit:
            need = self._limits.need(job)
            for _, kind, found in self._concerning(job, need, now + self._runtime(job)):
                found.spare -= need[kind]

    def _concerning(
        self, job: Job, need: Amount, ends_at: float
    ) -> list[tuple[TenantKey, int, QuotaReservation]]:
        """Return the quota reservations of other jobs that a start of this job could delay, each as (tenant,
        kind of resource, reservation). The job would end at `ends_at` and needs the amounts `need`.

        These are the reservations of a limit for which the job counts too, if the job would still run at the
        reserved start.
        """
        project = "project", job.spec.project
        kinds = (*KINDS, *range(FIRST_MODEL, len(need)))
        keys = [account.key for account in self._state.accounts.tenants_of(job.user, job.spec)]
        limits: list[tuple[TenantKey, Limit]] = [(key, (key, kind, False)) for key in keys for kind in kinds]
        limits += [
            (project, (("project", ""), kind, True))
            for kind in kinds
            if project in keys
            and (("project", ""), kind, True) in self._by_limit
            and self._state.quotas.borrows(job.spec.project, kind, need[kind])
        ]
        return [
            (key, limit[1], found)
            for key, limit in limits
            if (found := self._by_limit.get(limit)) is not None
            and found.job != job.id
            and found.job in self._state.queue
            and need[limit[1]]
            and ends_at > found.starts_at
        ]

    def _ends_by_tenant(self) -> dict[TenantKey, list[tuple[float, Amount]]]:
        if self._ends is None:
            self._ends = {}
            for end, number in self._state.releases:
                job = self._state.jobs[number]
                held = [member.allocation for member in job.running]
                if held:
                    amount = self._state.accounts.held(job, held)
                    for account in self._state.accounts.tenants_of(job.user, job.spec):
                        self._ends.setdefault(account.key, []).append((end, amount))
        return self._ends
