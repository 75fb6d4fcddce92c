"""Checks the limits on the start of a job: quotas, fair-share limits, budgets, start hours of queues, GPUs
kept for other queues, and the reservation that the job names (`--reservation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from controller.core.backfill.profiles.shared_reservations import SharedReservations
from controller.core.cluster.gpus.gpu_requirements import milli_by_model
from controller.core.fairshare.share_tree import TenantAtLimit
from controller.core.model.allocation import Allocation
from controller.core.model.job import NEVER, Job
from controller.core.placement.placer import Placer, quota_need
from controller.core.quota.budgets import BudgetSpent
from controller.core.quota.hours.week_hours import HoursClosed
from controller.core.quota.kept_gpus import GpusKept, KeptGpus
from controller.core.quota.limit_exceeded import LimitExceeded
from controller.core.quota.usage_counters import GPU_TIME, Amount, TenantKey
from controller.core.reservations.reservations import ReservationClosed
from controller.core.state.state import State
from wire.names import Reason

Stop = TenantAtLimit | HoursClosed | BudgetSpent | GpusKept | ReservationClosed
"""A limit other than a quota that can keep a job from starting."""
StartLimit = LimitExceeded | Stop
"""A quota, or another limit (`Stop`), that can keep a job from starting."""


def _all_gpus(_duration: float, _now: float) -> dict[int, int]:
    return {}


class StartLimits:
    """Checks the limits on starts in one scheduler profile before each start.

    The check adds the job's resources to those of running jobs and of nominated jobs (jobs whose preemption
    victims are still ending). Some limits stop blocking a job although no event happens. For example, GPU
    time within a time window falls, the start hours of a queue begin, or a budget begins a new month.
    `again_at` is the next time at which this may happen. If no limit is set (`State.limited` is False),
    callers skip the check.
    """

    def __init__(self, state: State, placer: Placer, shared: SharedReservations | None = None) -> None:
        self._state = state
        self._placer = placer
        self.shared = shared
        """The backfill reservations on nodes that the scheduler profile shares with other profiles. None if
        this profile shares neither nodes nor licences with another profile.
        """
        self._kept_gpus = KeptGpus(state.quotas.rules.queues)
        self.again_at = NEVER
        """The next time at which a limit may stop blocking a job although no event happens."""

    def over(self, job: Job, now: float, nodes: int | None = None) -> StartLimit | None:
        """Return the limit that keeps the job from starting now. Return None if there is no such limit.

        `nodes` is the number of nodes on which the job would start, if that is less than `--nodes`.
        """
        stopped = self._stopped(job, now)
        if stopped is not None or self._state.quotas.unlimited:
            return stopped
        return self._over(job, now, self._claimed(job), nodes)

    def nodes_within(self, job: Job, now: float) -> int:
        """Return the greatest number of nodes on which hard limits let a job with `--min-nodes` start.

        Return 0 if the limits do not let the job start on any number of nodes, or if the job cannot start on
        fewer nodes: it has no `--min-nodes`, or requires topology domains.
        """
        if self._stopped(job, now) is not None:
            return 0
        return self._within(job, now, {} if self._state.quotas.unlimited else self._claimed(job))

    def _within(self, job: Job, now: float, claimed: Mapping[TenantKey, list[int]]) -> int:
        shape = self._placer.shape(job.ask)
        if shape is None or job.ask.least is None or shape.topology_required:
            return 0
        counts = range(shape.nodes, job.ask.least - 1, -1)
        return next((count for count in counts if self._over(job, now, claimed, count) is None), 0)

    def _stopped(self, job: Job, now: float) -> Stop | None:
        """Return the limit other than a quota that keeps the job from starting: the reservation that the job
        names, the start hours of its queue, the used-up budget of its project, GPUs kept for other queues, or
        a reached fair-share limit. Return None if no such limit keeps the job from starting.
        """
        state = self._state
        if job.claim and job.reason is Reason.MOVING:
            # Reservations, start hours and budgets do not apply to a job that is being moved, because it has
            # already started.
            return self._at_share_limit(job, now)
        unreserved = state.reservations.closed(job.spec, job.user, now)
        if unreserved is not None:
            return unreserved
        closed = state.quotas.closed(job.spec.queue, now)
        if closed is not None:
            self.again_at = min(self.again_at, closed.opens_at)
            return closed
        spent = state.budgets.spent(job.spec.project, now) if state.budgets.stops else None
        if spent is not None:
            self.again_at = min(self.again_at, spent.standing.ends_at)
            return spent
        kept = self._gpus_kept(job, now) if self._kept_gpus and not job.claim else None
        if kept is not None:
            self.again_at = min(self.again_at, kept.until)
            return kept
        return self._at_share_limit(job, now)

    def _gpus_kept(self, job: Job, now: float) -> GpusKept | None:
        nodes, shape = self._state.nodes, self._placer.shape(job.ask)
        if shape is None:
            return None
        scavengers = None if self.shared is None else self.shared.scavengers
        if scavengers is not None and scavengers.yields(job):
            return None
        preemptible = {} if scavengers is None else scavengers.gpus_by_row(now)
        priority = self._state.quotas.rules.queue(job.spec.queue).priority
        versions = nodes.change_count, nodes.layout_version
        unreserved = _all_gpus if self.shared is None else self.shared.unreserved_gpus
        kept = self._kept_gpus.bars(
            priority, shape.part, shape.nodes, nodes.columns, versions, now, unreserved, preemptible
        )
        return None if kept is None else replace(kept, withheld=self._placer.fits(job.ask))

    def _at_share_limit(self, job: Job, now: float) -> TenantAtLimit | None:
        state = self._state
        stopped = state.shares.at_hard_limit(state.tenant(job), now) if state.shares.hard else None
        if stopped is not None:
            self.again_at = min(self.again_at, stopped.until)
        return stopped

    def may_grow(self, job: Job, allocations: Iterable[Allocation], now: float) -> bool:
        """Return whether a running job stays within the limits if the job also gets these allocations."""
        if self._at_share_limit(job, now) is not None or self._state.budgets.spent(job.spec.project, now):
            return False
        if self._state.quotas.unlimited:
            return True
        cpu, memory, gpu, _, _, time, *of_models = self._state.accounts.held(job, allocations)
        need = cpu, memory, gpu, 0, 0, time, *of_models
        return self._state.quotas.over_hard(job.user, job.spec, need, now, self._claimed(None)) is None

    def claims(self, now: float) -> Claims:
        """Return the claims of the nominated jobs: the amounts that these jobs will add to the usage of
        quotas when they start. The caller adds the claims of other waiting jobs.
        """
        return Claims(self, now, self._claimed(None))

    def _over(
        self, job: Job, now: float, claimed: Mapping[TenantKey, list[int]], nodes: int | None = None
    ) -> LimitExceeded | None:
        accounts = self._state.accounts
        found = self._state.quotas.over_hard(job.user, job.spec, self.need(job, nodes), now, claimed)
        if found is not None and found.kind == GPU_TIME:
            falls_at = accounts.tenant(found.key).falls_at(now, accounts.window_s)
            self.again_at = min(self.again_at, falls_at)
        return found if found is not None else self._over_all_models(job, claimed, nodes)

    def _over_all_models(
        self, job: Job, claimed: Mapping[TenantKey, list[int]], nodes: int | None
    ) -> LimitExceeded | None:
        """Return the quota of a GPU model that the job would exceed, if it would exceed the quotas of all GPU
        models that suit it. Return None if at least one of these models has enough quota.

        `claimed` contains the quota amounts that are kept for nominated jobs, by tenant. If only some models
        are at a limit, `barred_nodes` keeps the job from their nodes.
        """
        shape = self._placer.shape(job.ask) if self._state.quotas.models else None
        if shape is None:
            return None
        count = shape.nodes if nodes is None else min(shape.nodes, nodes)
        suited = milli_by_model(shape.part, self._placer.nodes.columns)
        needs = {model: milli * count for model, milli in suited.items()}
        full = self._state.quotas.full_models(job.user, job.spec, needs, claimed)
        return next(iter(full.values())) if full and len(full) == len(needs) else None

    def need(self, job: Job, nodes: int | None = None) -> Amount:
        """Return the amounts that the job adds to the quota usage of each of its tenants when it runs.

        `nodes` is the number of nodes on which the job runs, if that is less than `--nodes`.
        """
        return quota_need(self._placer, job.ask, job.spec.time_limit_s, self._state.accounts, nodes)

    def _claimed(self, job: Job | None) -> dict[TenantKey, list[int]]:
        """Return the amounts that nominated jobs will use of the quotas of each tenant. These jobs start when
        their victims have ended. The amounts of `job` itself are left out.
        """
        claimed: dict[TenantKey, list[int]] = {}
        for each in self._state.claims:
            # Skip a job that is being moved to other nodes, because the resources that the job holds now are
            # already counted.
            if (job is None or each != job.id) and not self._state.jobs[each].unended:
                other = self._state.jobs[each]
                self._add_need(claimed, other, self._state.accounts.held(other, other.claim))
        return claimed

    def _add(self, claimed: dict[TenantKey, list[int]], job: Job, nodes: int | None = None) -> None:
        self._add_need(claimed, job, self.need(job, nodes))

    def _add_need(self, claimed: dict[TenantKey, list[int]], job: Job, need: Amount) -> None:
        for account in self._state.accounts.tenants_of(job.user, job.spec):
            before = claimed.get(account.key)
            claimed[account.key] = (
                [*need] if before is None else [one + more for one, more in zip(before, need, strict=True)]
            )


class Claims:
    """The amounts (claims) that waiting jobs will add to the usage of quotas when they start. The amounts of
    nominated jobs (jobs with nodes kept for them) are included.

    Use this for a plan in which several jobs start: a later job is within the limits only if it exceeds no
    limit after all jobs with claims have started.
    """

    def __init__(self, limits: StartLimits, now: float, claimed: dict[TenantKey, list[int]]) -> None:
        self._limits = limits
        self._now = now
        self._claimed = claimed

    def claim(self, job: Job) -> tuple[bool, int | None, bool]:
        """Claim the amounts that the job needs, if the job exceeds no limit.

        Return three values:
        1. True if the job is within the limits.
        2. The greatest number of nodes that the limits allow the job. None means all nodes that the job
           requests.
        3. False if the limit also keeps the later jobs of the lane (jobs with the same request) from
           starting, so that they need not be tried.
        """
        limits, claimed = self._limits, self._claimed
        if limits._stopped(job, self._now) is not None:
            return False, None, False
        over = limits._over(job, self._now, claimed)
        most = None if over is None else limits._within(job, self._now, claimed)
        if most == 0:
            return False, None, over is not None and over.only_this_job
        self.add(job, most)
        return True, most, True

    def add(self, job: Job, most: int | None) -> None:
        """Claim the amounts that the job needs on at most `most` nodes. None means all nodes that the job
        requests.
        """
        self._limits._add(self._claimed, job, most)

    def breaks(self, job: Job) -> StartLimit | None:
        """Return the limit that would keep the job from starting after all jobs with claims have started.
        Return None if there is no such limit.
        """
        stopped = self._limits._stopped(job, self._now)
        return stopped or self._limits._over(job, self._now, self._claimed)
