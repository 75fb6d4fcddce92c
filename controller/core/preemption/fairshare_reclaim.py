"""Reclaim: a preemption strategy that takes resources back for a waiting job. Tenants must give resources
back if they use more than their fair share or have borrowed quota.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from controller.core.fairshare.share_tree import SharePath
from controller.core.model.allocation import Allocation
from controller.core.model.job import Job, Member
from controller.core.placement.placer import Placer, quota_need
from controller.core.quota.queue_rules import EXEMPT_FAIR_SHARE, EXEMPT_QUOTA
from controller.core.quota.usage_counters import CPU, FIRST_MODEL, GPU, MEMORY, RUNNING, Amount

if TYPE_CHECKING:
    from controller.core.state.state import State

LENDABLE = (CPU, MEMORY, GPU, RUNNING)
_NOISE = 1e-9


@dataclass(frozen=True, slots=True)
class ReclaimContext:
    """The data from which a reclaim strategy finds the tenants that must give resources back."""

    state: State
    placer: Placer
    now: float


class ReclaimPolicy(Protocol):
    """Decides for one waiting job which running jobs may be stopped. A tenant loses jobs only while the
    tenant holds more than its entitlement (fair share or own quota).
    """

    def must_give_back(self, group: Hashable) -> bool:
        """Return whether the tenant or project `group` holds more than its entitlement."""
        ...

    def select(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Yield the jobs in `jobs` that may be stopped together, in the same order.

        A yielded job counts as ended from then on. As soon as the remaining jobs of a tenant hold at most the
        tenant's entitlement, no further job of this tenant is yielded.
        """
        ...


@runtime_checkable
class ReclaimStrategy(Protocol):
    """A preemption strategy that stops only jobs of tenants that hold more than their entitlement (fair share
    or own quota).
    """

    def group(self, job: Job, state: State) -> Hashable:
        """Return the tenant or project for which this running job counts. The job may be stopped only if this
        tenant or project holds more than its entitlement. Return None if the job counts for no tenant. The
        job is then never stopped.

        The result for a job must not change while the job runs.
        """
        ...

    def reclaim_policy(self, job: Job, context: ReclaimContext) -> ReclaimPolicy | None:
        """Return the policy that decides which jobs may be stopped for this waiting job. Return None if no
        tenant must give resources back for this job.
        """
        ...


def is_exempt(state: State, job: Job, what: str) -> bool:
    """Return whether the queue of the job is exempt from quotas (`what` is EXEMPT_QUOTA) or from charges to
    shares (EXEMPT_FAIR_SHARE).
    """
    return what in state.quotas.rules.queue(job.spec.queue).exempt


def pending_transfers(state: State, what: str) -> Iterator[tuple[Job, list[Allocation], int]]:
    """Yield (job, allocations, sign) for each job whose allocations will change when the victims of planned
    preemptions have ended. With sign 1 the job gets the allocations, with sign -1 the job loses the
    allocations. Jobs in queues that are exempt from `what` are left out, because these jobs do not count for
    their tenants.

    Reclaim policies add these allocations to the present resources of each tenant. Without this, two
    preemptions in a row would reclaim the same resources twice.
    """
    for claimant in (state.jobs[each] for each in state.claims):
        if not is_exempt(state, claimant, what):
            yield claimant, list(claimant.claim), 1
        for victim in claimant.claim_from:
            job = state.jobs.get(victim.job)
            if job is None or is_exempt(state, job, what):
                continue
            if job.attempt == victim.attempt and job.unended:
                going = [member.allocation for member in job.running if _leaves(state, job, member, claimant)]
                yield job, [each for each in going if not victim.nodes or each.node in victim.nodes], -1


def _leaves(state: State, job: Job, member: Member, claimant: Job) -> bool:
    """Return whether the victim `job` leaves the node of `member` for the waiting job `claimant`. A victim on
    several nodes may leave its nodes for different waiting jobs.
    """
    leaving = state.nodes.by_name[member.allocation.node].leaving
    return leaving.get(job.id, claimant.id) == claimant.id


class FairShareReclaim:
    """Reclaim by fair share: a tenant above its fair share gives resources to a tenant below its own fair
    share.

    Algorithm
    1. For each tenant of the fair-share tree, take the present use in billing units per hour. Add the use of
       nominated jobs, and subtract the use of their victims (`pending_transfers`).
    2. The path of the waiting job's tenant has one tenant on each level of the tree, such as organisation,
       project and user. Find the deepest level whose tenant would exceed its fair share with this job. The
       job may reclaim only on the levels below, or on all levels if no tenant would exceed its fair share. If
       there is no level below, the job is not `entitled` to reclaim.
    3. Compare the path of a running job's tenant with the path of the waiting job's tenant, from the top of
       the tree. The first tenant that is only on the running job's path is the `side` of the running job. The
       jobs of a side may be stopped under two conditions. The side is deeper than the level of step 2, and
       the use of the side is more than `threshold` times its fair share.
    4. `select` stops jobs of a side only until its use is at most `threshold` times its fair share.

    Invariant: a tenant that has reclaimed resources stays within its fair share on that level. So no other
    tenant can reclaim these resources on that level. Therefore two tenants cannot stop each other's jobs in
    turns. Cost: O(depth of the tree) for each tenant.

    Example: projects a and b share 16 GPUs evenly, so the fair share of each is 8. The threshold is 1.25.
    Project a holds 14, and b holds 2 and waits for 4 more. With 6 GPUs, b is within its fair share. Project a
    holds more than 10 (8 * 1.25), so jobs of a may be stopped until a holds 10 or less.
    """

    def __init__(self, context: ReclaimContext, job: Job, threshold: float) -> None:
        self._state = context.state
        self._threshold = threshold
        self._path = context.state.tenant(job)
        self._shifted = dict[SharePath, float]()
        for each, allocations, sign in pending_transfers(context.state, EXEMPT_FAIR_SHARE):
            self._shift(context.state.tenant(each), sign * self._charge(allocations))
        asked = self._asked(context, job)
        depths = range(1, len(self._path) + 1)
        beyond = [
            depth
            for depth in depths
            if self._rate(self._path[:depth]) + asked > self._fair(self._path[:depth]) + _NOISE
        ]
        self._from = max(beyond, default=0) + 1
        """On this level of the fair-share tree and on all lower levels, the waiting job's tenant is within
        its fair share.
        """
        self.entitled = self._from <= len(self._path)

    def _shift(self, path: SharePath, rate: float) -> None:
        for depth in range(1, len(path) + 1):
            self._shifted[path[:depth]] = self._shifted.get(path[:depth], 0.0) + rate

    def _charge(self, allocations: Iterable[Allocation]) -> float:
        nodes, sharing = self._state.nodes, self._state.shares.sharing
        return sum(
            sharing.charge(each, nodes.gpu_models(each.node) if sharing.by_model else {})
            for each in allocations
        )

    def _asked(self, context: ReclaimContext, job: Job) -> float:
        """Return the charge for the waiting job in billing units per hour. The job is assumed to get the most
        expensive suitable GPUs.
        """
        cpu, memory, gpu, *_ = quota_need(context.placer, job.ask, 0.0, context.state.accounts)
        return self._state.shares.sharing.dearest(cpu, memory, gpu, context.state.nodes.columns.models)

    def _rate(self, path: SharePath) -> float:
        return self._state.shares.accounts[path].usage.rate + self._shifted.get(path, 0.0)

    def _fair(self, path: SharePath) -> float:
        return self._state.shares.fair_rate(path, self._state.capacity)

    def _side(self, path: SharePath) -> SharePath | None:
        """Return the tenant from which the waiting job may reclaim the resources of a running job. `path` is
        the path of the running job's tenant in the fair-share tree. The result is the first tenant of `path`
        that is not on the path of the waiting job's tenant. Return None if this tenant is not below the level
        of step 2 in the docstring of FairShareReclaim.
        """
        for depth in range(1, min(len(path), len(self._path)) + 1):
            if path[:depth] != self._path[:depth]:
                return path[:depth] if depth >= self._from else None
        return None

    def _excess(self, side: SharePath) -> float:
        return self._rate(side) - self._threshold * self._fair(side)

    def must_give_back(self, group: Hashable) -> bool:
        """Return whether jobs of the tenant `group` may be stopped. The result is True if the waiting job may
        reclaim from `group` or a tenant above it (`_side`), and if this tenant (the side) uses more than
        `threshold` times its fair share.
        """
        if group is None:
            return False
        assert isinstance(group, tuple)
        side = self._side(group)
        return side is not None and self._excess(side) > _NOISE

    def select(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Yield the jobs in `jobs` that may be stopped together, in the same order.

        A yielded job counts as ended from then on. As soon as a tenant uses at most `threshold` times its
        fair share, none of its remaining jobs is yielded.
        """
        left = dict[SharePath, float]()
        for job in jobs:
            side = self._side(self._state.tenant(job))
            if is_exempt(self._state, job, EXEMPT_FAIR_SHARE):
                continue
            if side is not None and left.setdefault(side, self._excess(side)) > _NOISE:
                left[side] -= job.charge
                yield job


def fair_share_reclaim(context: ReclaimContext, job: Job, threshold: float) -> ReclaimPolicy | None:
    """Return the policy that decides which running jobs may be stopped for this waiting job by fair share.
    Return None if the waiting job would take its own user above the user's fair share, or if its queue is not
    charged to shares.
    """
    if is_exempt(context.state, job, EXEMPT_FAIR_SHARE):
        return None
    policy = FairShareReclaim(context, job, threshold)
    return policy if policy.entitled else None


class QuotaReclaim:
    """Reclaim by quota: a project with borrowed quota gives resources to a project within its own quota.

    Algorithm
    1. Count the resources that each project will hold after all stopped victims have ended
       (`pending_transfers`).
    2. The waiting job's project may reclaim (`entitled`) if it has a hard limit on a resource that the job
       needs, and if its use with this job is within all these limits.
    3. Another project must give resources back if it may borrow one of these resources and holds more of it
       than its own hard limit. The amount above the limit is borrowed.
    4. `select` stops jobs of a project only until the project has borrowed nothing of these resources.

    Example: projects a and b have a quota of 8 GPUs each, and a has borrowed 4 GPUs of b. Project b holds 4
    and submits a job of 4 GPUs. With this job b holds 8, which is within its own quota. Jobs of a may
    therefore be stopped until a holds 8.
    """

    def __init__(self, state: State, project: str, need: Amount) -> None:
        self._state = state
        self._project = project
        """The project of the waiting job."""
        lendable = *LENDABLE, *range(FIRST_MODEL, len(need))
        self._needed = tuple(resource for resource in lendable if need[resource])
        self._shifted: dict[str, list[int]] = {}
        for job, allocations, sign in pending_transfers(state, EXEMPT_QUOTA):
            shifted = self._shifted.setdefault(job.spec.project, [0] * len(need))
            for resource, amount in enumerate(state.accounts.held(job, allocations)):
                shifted[resource] += sign * amount
        self._borrowed_by: dict[str, Mapping[int, int]] = {}
        limits = [
            each for each in state.quotas.limits_of(("project", project)).hard if each[0] in self._needed
        ]
        self.entitled = bool(limits) and all(
            self._used(project, resource) + need[resource] <= limit for resource, limit in limits
        )
        """True if the project has a hard limit on a resource that the waiting job needs, and stays within all
        these limits with the waiting job.
        """

    def _used(self, project: str, resource: int) -> int:
        account = self._state.accounts.by_key.get(("project", project))
        used = 0 if account is None else account.used[resource]
        return used + (self._shifted[project][resource] if project in self._shifted else 0)

    def _borrowed(self, project: str) -> Mapping[int, int]:
        """Return how much a project has borrowed of each resource that the waiting job needs."""
        found = self._borrowed_by.get(project)
        if found is None:
            bounds = self._state.quotas.limits_of(("project", project))
            found = self._borrowed_by[project] = {
                resource: beyond
                for resource, limit in bounds.hard
                if resource in bounds.lent
                and resource in self._needed
                and (beyond := self._used(project, resource) - limit) > 0
            }
        return found

    def must_give_back(self, group: Hashable) -> bool:
        """Return whether another project (`group`) has borrowed a resource that the waiting job needs."""
        return group is not None and group != self._project and bool(self._borrowed(str(group)))

    def select(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Yield the jobs in `jobs` that may be stopped together, in the same order.

        A yielded job counts as ended from then on. As soon as a project borrows no resource that the waiting
        job needs, none of its remaining jobs is yielded.
        """
        left: dict[str, dict[int, int]] = {}
        for job in jobs:
            project = job.spec.project
            if is_exempt(self._state, job, EXEMPT_QUOTA) or not self.must_give_back(project):
                continue
            borrowed = left.setdefault(project, dict(self._borrowed(project)))
            amount = self._state.accounts.held(job, [member.allocation for member in job.running])
            if any(beyond > 0 and amount[resource] for resource, beyond in borrowed.items()):
                for resource in borrowed:
                    borrowed[resource] -= amount[resource]
                yield job


def quota_reclaim(context: ReclaimContext, job: Job) -> ReclaimPolicy | None:
    """Return the policy that decides which running jobs may be stopped for this waiting job by quota. Return
    None if there are no quotas, if the job's queue is exempt from quotas, or if the waiting job's project may
    not reclaim (`QuotaReclaim.entitled`).
    """
    state = context.state
    if state.quotas.unlimited or is_exempt(state, job, EXEMPT_QUOTA):
        return None  # Without quotas nothing is borrowed, and a job in an exempt queue never waits for quota.
    need = quota_need(context.placer, job.ask, job.spec.time_limit_s, state.accounts)
    policy = QuotaReclaim(state, job.spec.project, need)
    return policy if policy.entitled else None
