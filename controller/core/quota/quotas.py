"""Quotas: the limits of users, projects and queues, compared with the usage counters.

`Quotas.version` increases with every change of a limit. Backfill then checks again the jobs that were over a
limit. Limits that are a percentage of the cluster change when nodes are added or removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from controller.core.cluster.gpus.gpu_counts import GpuCounts
from controller.core.cluster.node_table import names_model
from controller.core.quota.hours.timetable import HoursTable
from controller.core.quota.hours.week_hours import HoursClosed
from controller.core.quota.limit_exceeded import LimitExceeded
from controller.core.quota.quota_config import NO_QUOTAS, QuotaConfig
from controller.core.quota.tenant_limits import TenantLimits, amount_limits, tenant_limits, with_gpu_numbers
from controller.core.quota.usage_counters import (
    FIRST_MODEL,
    GPU_TIME,
    QUEUE_USER,
    Amount,
    TenantKey,
    TenantUsage,
    UsageCounters,
)
from wire.cluster.quota import ANY_NAME, NO_LIMITS, SCOPES, UNLIMITED, Limits, Quota
from wire.job.spec import JobSpec

NOTHING_RESERVED: Mapping[TenantKey, list[int]] = {}
NO_SHARES: Mapping[int, str] = {}


class Quotas:
    """The quotas in effect: the quotas of the configuration, and the quotas of operators (`edits`), which
    override the configuration.

    1. Each limit of a tenant comes from the first source that sets the limit. The sources are, in this order:
       the operator's quota for the tenant, the tenant's entry in a table [hours.NAME] that is in force, the
       tenant's entry in [quota], and then the same three sources for "*" (all tenants). The number of running
       jobs of a queue is also limited by `[queues.NAME] max_running`.
    2. A job exceeds a hard limit if its need, added to the tenant's usage, is above the limit. A project may
       borrow: it may use up to `borrow` more than its hard limit, while all projects with hard limits of
       their own together use at most the sum of these limits.
    3. A job that borrows, or that exceeds a soft limit, may start, but comes after all other jobs in the
       queue. One exception: a job that alone needs more than the soft limit counts as exceeding it only if
       its tenant already uses the whole soft limit.

    Cost: one comparison for each limit of the job's user, project and queue; nothing if there is no limit at
    all.

    Example: projects a and b have a limit of 8 GPUs each, and a may borrow 4. If a uses 8 and b uses 3, a may
    start a 4-GPU job (12 <= 8 + 4, and 15 <= 16). If b uses 5, the job of a may not start (17 > 16).
    """

    def __init__(self, accounts: UsageCounters, gpus: GpuCounts) -> None:
        self.accounts = accounts
        self.gpus = gpus
        """The number of GPUs in the cluster, from which limits in percent are computed."""
        self.edits: dict[TenantKey, Quota] = {}
        """Quotas set by operators. These quotas are stored, and override the configuration."""
        self.rules = NO_QUOTAS
        self.unlimited = True
        """True if no quota and no queue rule can keep a job from starting."""
        self.has_queue_priorities = False
        """True if a queue has a priority other than 0."""
        self.has_soft_limits = False
        """True if a tenant has a soft limit or may borrow."""
        self.models: tuple[str, ...] = ()
        """The GPU models on which a quota has a limit. The resource FIRST_MODEL + i is GPUs of the model
        models[i].
        """
        self._version = 0
        self._counted = 0
        """The value of `GpuCounts.version` when the limits were cached."""
        self._has_percentages = False
        self._bounds: dict[TenantKey, TenantLimits] = {}
        self._lender_limits: dict[int, tuple[tuple[TenantUsage, int], ...]] = {}
        self._in_force: tuple[HoursTable, ...] = ()
        self._most_by_hours: dict[TenantKey, list[dict[int, int]]] = {}
        self._closed: dict[str, tuple[float, float]] = {}
        """(begin, end) of a time during which the queue starts no jobs, by queue name. `begin` is the time of
        the check that found the queue closed.
        """

    @property
    def version(self) -> int:
        """Return a number that increases with every change of a limit."""
        self._follow_cluster()
        return self._version

    def _follow_cluster(self) -> None:
        if self._has_percentages and self._counted != self.gpus.version:
            self._clear()

    def adopt(self, rules: QuotaConfig) -> None:
        """Use the quotas of another configuration. Quotas set by operators stay in effect."""
        self.rules = rules
        self._forget()

    def follow_hours(self, tables: tuple[HoursTable, ...]) -> None:
        """Use the quotas of these tables [hours.NAME], which are now in force, and of no other tables."""
        if tables != self._in_force:
            self._in_force = tables
            self._clear()

    def edit(self, key: TenantKey, quota: Quota | None) -> None:
        """Set the operator's quota of a tenant, which overrides the configuration. None removes the
        operator's quota.
        """
        if quota is None:
            self.edits.pop(key, None)
        else:
            self.edits[key] = quota
        self._forget()

    def _forget(self) -> None:
        self.unlimited = self.rules.unlimited and not self.edits
        self.has_queue_priorities = any(rule.priority for rule in self.rules.queues.values())
        everything = [*self.edits.values(), *self._stated()]
        self.has_soft_limits = any(each.soft != NO_LIMITS or each.borrow != NO_LIMITS for each in everything)
        parts = [part for each in everything for part in (each.hard, each.soft, each.borrow)]
        self._has_percentages = any(
            part.gpus_percent is not None
            or any(limit.percent is not None for limit in part.gpus_per_model.values())
            for part in parts
        )
        # Treat two spellings of a GPU model that differ only in upper and lower case as one resource.
        names = {model.casefold(): model for part in parts for model in sorted(part.gpus_per_model)}
        self.models = tuple(names[each] for each in sorted(names))
        self._clear()

    def _clear(self) -> None:
        self._bounds.clear()
        self._closed.clear()
        self._most_by_hours.clear()
        self._lender_limits.clear()
        self._counted = self.gpus.version
        self._version += 1

    def _stated(self) -> Iterator[Quota]:
        provider = self.rules.provider
        for scope in SCOPES:
            for name in (ANY_NAME, *provider.names(scope)):
                found = provider.quota(scope, name)
                if found is not None:
                    yield found
        for table in self.rules.timetable.tables:
            yield from table.quotas.values()

    def quota(self, key: TenantKey) -> Quota:
        """Return the quota in effect for a tenant. Percentages of the cluster are converted to the present
        number of GPUs.
        """
        return self._quota_under(self._in_force, key)

    def _quota_under(self, tables: tuple[HoursTable, ...], key: TenantKey) -> Quota:
        """Return the quota of a tenant at times when exactly these tables [hours.NAME] are in force."""
        scope, name = key
        if scope == QUEUE_USER:
            rule = self.rules.queue(name.partition("/")[0])
            return Quota(Limits(gpus=rule.max_gpus_per_user, running=rule.max_running_per_user))
        found = Quota()
        for tenant in (key, (scope, ANY_NAME)):
            by_hours = (each.quotas.get(tenant) for each in tables)
            for each in (self.edits.get(tenant), *by_hours, self.rules.provider.quota(*tenant)):
                if each is not None:
                    found = found.over(each)
        most = self.rules.queue(name).max_running if scope == "queue" else None
        if most is not None:
            running = found.hard.running
            if running is None or running == UNLIMITED or running > most:
                found = Quota(Limits(running=most).over(found.hard), found.soft, found.borrow)
        if not self._has_percentages:
            return found
        return Quota(*(with_gpu_numbers(each, self.gpus) for each in (found.hard, found.soft, found.borrow)))

    def projects_set_live(self) -> set[str]:
        """Return the projects whose quotas operators have set."""
        return {name for scope, name in self.edits if scope == "project" and name != ANY_NAME}

    def names(self) -> list[TenantKey]:
        """Return (scope, name) of every tenant with a quota of its own. The name "*" stands for the default
        quota of all users, all projects or all queues.
        """
        keys = {*self.edits}
        for scope in SCOPES:
            keys |= {(scope, name) for name in self.rules.provider.names(scope)}
            if self.rules.provider.quota(scope, ANY_NAME) is not None:
                keys.add((scope, ANY_NAME))
        keys |= {key for each in self.rules.timetable.tables for key in each.quotas}
        keys |= {("queue", name) for name, rule in self.rules.queues.items() if rule.max_running is not None}
        return sorted(keys, key=lambda key: (SCOPES.index(key[0]), key[1] != ANY_NAME, key[1]))

    def limits_of(self, key: TenantKey) -> TenantLimits:
        """Return the limits in effect for a tenant. The limits are cached until a quota changes."""
        self._follow_cluster()
        found = self._bounds.get(key)
        if found is None:
            quota = self.quota(key)
            found = self._bounds[key] = tenant_limits(quota, self.models, self.gpus)
        return found

    def closed(self, queue: str, now: float) -> HoursClosed | None:
        """Return the reason if no job of the queue may start now, because the time is outside the queue's
        hours. Return None if jobs may start.
        """
        hours = self.rules.queue(queue).hours
        if hours is None:
            return None
        since, until = self._closed.get(queue, (now, now))
        if not since <= now < until:
            if hours.is_open(now):
                return None
            since, until = self._closed[queue] = now, hours.next_opening(now)
        return HoursClosed(queue, hours, now, until)

    def over_hard(
        self,
        user: str,
        spec: JobSpec,
        need: Amount,
        now: float,
        reserved: Mapping[TenantKey, list[int]] = NOTHING_RESERVED,
    ) -> LimitExceeded | None:
        """Return the first hard limit that the job would exceed if it started now; None if there is no such
        limit. `need` is the amount of each resource that the job requests. `reserved` contains amounts that
        count as used in addition to the usage counters, by tenant.
        """
        if self.unlimited:
            return None
        for account in self.accounts.tenants_of(user, spec):
            bounds = self.limits_of(account.key)
            for kind, limit in bounds.hard:
                if need[kind]:
                    used = account.amount(kind, now, self.accounts.window_s)
                    used += reserved[account.key][kind] if account.key in reserved else 0
                    if used + need[kind] > limit:
                        over = self._over_loan(account, bounds, kind, used, need[kind], limit, reserved)
                        if over is not None:
                            return over
        return None

    def never_allowed(self, user: str, spec: JobSpec, need: Amount) -> LimitExceeded | None:
        """Return a hard limit that the job would exceed at all hours of the week, even if its tenants used
        nothing else and borrowed as much as possible. Return None if there is no such limit.
        """
        if self.unlimited:
            return None
        for account in self.accounts.tenants_of(user, spec):
            bounds = self.limits_of(account.key)
            for kind, limit in bounds.hard:
                if need[kind] > self._most(bounds, kind, limit) and not self._allowed_at_other_hours(
                    account.key, kind, need[kind]
                ):
                    return self._exceeded(account.key, kind, account.used[kind], need[kind], limit)
        return None

    def never_on_model(self, user: str, spec: JobSpec, model: str, need: int) -> LimitExceeded | None:
        """Return a hard limit on GPUs of the model `model` that a job with `need` thousandths of these GPUs
        would exceed at all hours of the week, even if its tenants used nothing else and borrowed as much as
        possible. Return None if there is no such limit.
        """
        for account in self.accounts.tenants_of(user, spec):
            bounds = self.limits_of(account.key)
            for kind, limit in bounds.hard:
                concerns = kind >= FIRST_MODEL and names_model(self.model_of(kind), model)
                if (
                    concerns
                    and need > self._most(bounds, kind, limit)
                    and not self._allowed_at_other_hours(account.key, kind, need)
                ):
                    return self._exceeded(account.key, kind, account.used[kind], need, limit)
        return None

    def _most(self, bounds: TenantLimits, kind: int, limit: int) -> int:
        """Return the largest amount of the resource `kind` that a tenant may use under its present limits
        `bounds`, including the amount that it may borrow. `limit` is its hard limit on the resource.
        """
        lent = bounds.lent.get(kind, 0)
        return max(limit, min(limit + lent, self._stated_sum(kind))) if lent else limit

    def _allowed_at_other_hours(self, key: TenantKey, kind: int, need: int) -> bool:
        """Return whether the hard limit of a tenant allows `need` of the resource `kind` at some time of the
        week, including the amount that the tenant may then borrow.
        """
        if not self.rules.timetable.tables:
            return False
        found = self._most_by_hours.get(key)
        if found is None:
            found = self._most_by_hours[key] = []
            for tables in self.rules.timetable.combinations():
                quota = self._quota_under(tables, key)
                lent = dict(amount_limits(quota.borrow, self.models))
                found.append(
                    {at: limit + lent.get(at, 0) for at, limit in amount_limits(quota.hard, self.models)}
                )
        return any(need <= most.get(kind, need) for most in found)

    def over_soft(
        self, user: str, spec: JobSpec, need: Amount, now: float, waited_s: float = 0.0
    ) -> LimitExceeded | None:
        """Return the first soft limit that the job would exceed, or the hard limit above which the job would
        borrow; None if there is neither. `waited_s` is the wait of the job in seconds. Soft limits do not
        apply after a wait of more than `soft_for_s`.
        """
        if not self.has_soft_limits:
            return None
        for account in self.accounts.tenants_of(user, spec):
            bounds = self.limits_of(account.key)
            loans = [each for each in bounds.hard if each[0] in bounds.lent]
            soft = bounds.soft if waited_s <= self.rules.soft_for_s else ()
            for index, (kind, limit) in enumerate((*soft, *loans)):
                # Compare the GPU time that is already used, and not the GPU time of the job: 1 is added so
                # that the limit counts as exceeded when it is used up. So jobs with the same request but
                # different time limits get the same result.
                more = 1 if kind == GPU_TIME else need[kind]
                used = account.amount(kind, now, self.accounts.window_s)
                if more > limit and index < len(soft):
                    # Count the need as 1, so that this job exceeds the soft limit only if the tenant already
                    # uses the whole limit. Otherwise the job would come after all other jobs even while its
                    # tenant uses nothing.
                    more = 1
                if more and used + more > limit:
                    shares = bounds.soft_shares if index < len(soft) else bounds.shares
                    return self._exceeded(account.key, kind, used, need[kind], limit, shares)
        return None

    def full_models(
        self,
        user: str,
        spec: JobSpec,
        milli_by_model: Mapping[str, int],
        reserved: Mapping[TenantKey, list[int]] = NOTHING_RESERVED,
    ) -> dict[str, LimitExceeded]:
        """Return the hard limit that the job would exceed now on each GPU model, by model. Models without an
        exceeded limit are left out.

        `milli_by_model` contains the thousandths of GPUs that the job would hold, by suitable GPU model, if
        all its GPUs were of this model. `reserved` is as in `over_hard`.
        """
        found: dict[str, LimitExceeded] = {}
        for account in self.accounts.tenants_of(user, spec) if self.models else ():
            bounds = self.limits_of(account.key)
            for kind, limit in bounds.hard:
                if kind < FIRST_MODEL:
                    continue
                used = account.used[kind] + (reserved[account.key][kind] if account.key in reserved else 0)
                for model, need in milli_by_model.items():
                    limited = model not in found and names_model(self.model_of(kind), model)
                    if limited and used + need > limit:
                        over = self._over_loan(account, bounds, kind, used, need, limit, reserved)
                        if over is not None:
                            found[model] = over
        return found

    def _exceeded(
        self,
        key: TenantKey,
        kind: int,
        used: int,
        need: int,
        limit: int,
        shares: Mapping[int, str] | None = None,
    ) -> LimitExceeded:
        found = self.limits_of(key).shares if shares is None else shares
        share = found.get(kind, "")
        return LimitExceeded(key, kind, used, need, limit, share=share, model=self.model_of(kind))

    def model_of(self, kind: int) -> str:
        """Return the GPU model of which the resource `kind` counts the GPUs; empty for a resource without a
        model.
        """
        return self.models[kind - FIRST_MODEL] if kind >= FIRST_MODEL else ""

    def borrows(self, project: str, kind: int, need: int) -> bool:
        """Return whether the project would exceed its own hard limit, and so borrow from other projects, if
        it used `need` more of the resource `kind`.
        """
        account = self.accounts.tenant(("project", project))
        limits = dict(self.limits_of(account.key).hard)
        return kind in limits and account.used[kind] + need > limits[kind]

    def lenders(self, kind: int) -> list[TenantKey]:
        """Return (scope, name) of each project with a hard limit of its own on the resource `kind`. These
        projects may lend each other the quota that they do not use.
        """
        return [account.key for account, _ in self._lenders_of(kind)]

    def _over_loan(
        self,
        account: TenantUsage,
        bounds: TenantLimits,
        kind: int,
        used: int,
        need: int,
        limit: int,
        reserved: Mapping[TenantKey, list[int]],
    ) -> LimitExceeded | None:
        """`used` plus `need` is above the hard limit `limit` of the tenant. Return None if the tenant may
        borrow the excess. Otherwise return the exceeded limit: that of the tenant, that with its greatest
        loan, or the sum of the limits of all lenders. `reserved` is as in `over_hard`.
        """
        lent = bounds.lent.get(kind, 0)
        if not lent:
            return self._exceeded(account.key, kind, used, need, limit)
        if used + need > limit + lent:
            return self._exceeded(account.key, kind, used, need, limit + lent, NO_SHARES)
        lenders = self._lenders_of(kind)
        held, stated = sum(each.used[kind] for each, _ in lenders), self._stated_sum(kind)
        held += sum(reserved[each.key][kind] for each, _ in lenders if each.key in reserved)
        return (
            LimitExceeded(account.key, kind, held, need, stated, lent=True, model=self.model_of(kind))
            if held + need > stated
            else None
        )

    def _stated_sum(self, kind: int) -> int:
        return sum(part for _, part in self._lenders_of(kind))

    def _lenders_of(self, kind: int) -> tuple[tuple[TenantUsage, int], ...]:
        """Return (usage counters, hard limit) of each project with a hard limit of its own on the resource
        `kind`. These projects may lend each other the quota that they do not use.
        """
        self._follow_cluster()
        found = self._lender_limits.get(kind)
        if found is None:
            own = {name for scope, name in self.edits if scope == "project"}
            own |= {*self.rules.provider.names("project")}
            own |= {name for each in self._in_force for scope, name in each.quotas if scope == "project"}
            named = [("project", name) for name in sorted(own - {ANY_NAME})]
            found = self._lender_limits[kind] = tuple(
                (self.accounts.tenant(key), limit)
                for key in named
                for at, limit in self.limits_of(key).hard
                if at == kind
            )
        return found
