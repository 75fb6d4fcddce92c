"""The fair-share tree. The tree contains the organisations, their projects and the projects' users, each with
a weight, limits and its use. The use of a tenant is the amount, in billing units, that its jobs have used;
older use counts less.

`ShareTree.version` increases when an operator sets a weight or limit, and when other tables [hours.NAME]
change weights. Backfill and preemption then drop their cached results.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from controller.core.fairshare.usage import DecayedUsage, FairshareConfig, WindowedUsage
from wire.cluster.quota import UNLIMITED
from wire.names import Reason
from wire.text import printable

SETTLED_S = 1.0
"""Seconds that are added to the computed time at which a tenant's use falls to its limit. Without them, the
use may still be just above the limit at that time because of rounding errors.
"""


USERS_COUNT = 0.3
"""How much a user's ratio used / fair counts in the fair-share factor (step 2 in the docstring of ShareTree).
The ratios of projects and organisations count 1.
"""


Ends = Sequence[tuple[float, float]]


SharePath = tuple[str, ...]
"""The path of a tenant from the root. The path of a user is (organisation, project, user), or (project, user)
if the project belongs to no organisation. The path of the root is ().
"""


@dataclass(frozen=True, slots=True)
class TenantAtLimit:
    """A tenant that has reached its hard limit. No job of the tenant starts until the use of the tenant falls
    below the limit.
    """

    path: SharePath
    name: str
    used: float
    limit: float
    until: float
    """The time at which the use falls below the limit, if the rate of use does not change. NEVER if the use
    stays at or above the limit.
    """
    reason: ClassVar[Reason] = Reason.SHARE
    only_this_job: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"share {printable(self.name)!r} has used {self.used:.4g} of {self.limit:.4g} units"


@dataclass(slots=True)
class FairShareTenant:
    """One tenant: the root of the fair-share tree, an organisation, a project or a user."""

    path: SharePath
    usage: DecayedUsage | WindowedUsage
    weight: float = 1.0
    below: Counter[float] = field(default_factory=Counter)
    """The number of child tenants by weight: {1.0: 3} for three child tenants of weight 1."""
    jobs: int = field(default=0, compare=False)
    """The number of unended jobs of this tenant and of all tenants below it."""
    active: Counter[float] = field(default_factory=Counter, compare=False)
    """Like `below`, but only for child tenants with unended jobs."""

    @property
    def weights(self) -> float:
        """The sum of the weights of the tenant's children. The function `fsum` adds the weights, so that the
        result does not depend on their order.
        """
        return math.fsum(weight * count for weight, count in self.below.items())


class ShareTree:
    """The fair-share tree. A tenant is identified by its path from the root, for example (organisation,
    project, user).

    1. A tenant is added with its first job and is never removed. When jobs of a tenant get or lose resources,
       its rate of use (billing units per hour) changes. The rates of all tenants above this tenant change by
       the same amount. The used amount decays without timers (usage.py).
    2. `factor`, for the priority, is 2 ** -x. Here x is the sum of used / fair over the organisation and the
       project, plus USERS_COUNT times used / fair of the user. The fair use of an organisation or a project
       is its weight, divided by the sum of the weights of all children of its parent, times the use that the
       whole cluster reaches if it is never idle. The fair use of a user is its part, by weight, of the use of
       its project (`part_of_project`). So users of a small project are compared with each other in the same
       way as users of a large project.
    3. `fairness`, for the order plugin `fair`, compares weight / used, first at the top level and then
       downwards.
    4. No job of a tenant at its hard limit starts. Jobs of a tenant above its soft limit come after all other
       jobs in the queue.

    Cost: O(depth) for each start, end and query; the depth is at most 4.

    Example: projects a (weight 3) and b (weight 1) share a cluster of 8 GPUs with a half-life of one day.
    Constant use of the whole cluster for a long time counts as 277 GPU-hours. The fair use of a is 3/4 of
    this, 208. The only user of a has used 208, which is the user's fair use, because a has no other user. So
    used / fair is 1 for a and for the user. The factor is 2 ** -1.3 = 0.41.
    """

    def __init__(self, sharing: FairshareConfig) -> None:
        self.sharing = sharing
        self.accounts: dict[SharePath, FairShareTenant] = {(): FairShareTenant((), sharing.usage())}
        self.set_weights: dict[str, float] = {}
        """Weights that operators have set, by the name of the tenant. These weights override the weights of
        scheduler.toml.
        """
        self.hour_weights: dict[str, float] = {}
        """Weights of the tables [hours.NAME] in force, by the name of the tenant. These weights override
        [fair_share] weights.
        """
        self.limits: dict[str, tuple[float | None, float | None]] = {}
        """The limits that operators have set, as (soft, hard) by the name of the tenant. None: the limit of
        scheduler.toml applies.
        """
        self.version = 0
        """A number that grows when a weight or limit changes."""
        self.soft = dict(sharing.soft)
        self.hard = dict(sharing.hard)
        """Soft and hard limits in effect, by the name of the tenant."""
        self.several_projects = False
        """True once the tree has two top-level tenants: organisations, or projects without an
        organisation.
        """
        self.without_row: list[SharePath] = []
        """The paths of tenants that have no database row yet."""
        self._above: dict[SharePath, tuple[FairShareTenant, ...]] = {}
        self._home = {name: name for name in sharing.organisations}
        for organisation, projects in sharing.organisations.items():
            self._home.update(dict.fromkeys(projects, organisation))

    def path(self, project: str, user: str) -> SharePath:
        """Return the path of a user in the fair-share tree: (organisation, project, user), or (project, user)
        if the project belongs to no organisation.
        """
        home = self._home.get(project)
        return (project, user) if home is None else (home, project, user)

    def name(self, path: SharePath) -> str:
        """Return the name of the tenant with this path: the organisation, the project, or `project/user`."""
        return "/".join(path[1:] if len(path) > 1 and path[0] in self.sharing.organisations else path)

    def add(self, path: SharePath) -> None:
        """Add the tenant with this path, and all tenants above it in the tree, if they are new."""
        for depth in range(1, len(path) + 1):
            if path[:depth] not in self.accounts:
                account = FairShareTenant(path[:depth], self.sharing.usage(), self.weight(path[:depth]))
                self.accounts[path[:depth]] = account
                self.accounts[path[: depth - 1]].below[account.weight] += 1
                self.without_row.append(path[:depth])
                self.several_projects |= depth == 1 and sum(self.accounts[()].below.values()) > 1

    def weight(self, path: SharePath) -> float:
        """Return the weight that is now in force for a tenant. The tenant need not be in the tree yet."""
        name = self.name(path)
        configured = self.hour_weights.get(name, self.sharing.weights.get(name, 1.0))
        return self.set_weights.get(name, configured)

    def add_job(self, path: SharePath) -> None:
        """Count a new job for the tenant and for all tenants above it in the tree."""
        for account in self._tenants_on(path):
            account.jobs += 1
            if account.jobs == 1 and account.path:
                self.accounts[account.path[:-1]].active[account.weight] += 1

    def remove_job(self, path: SharePath) -> None:
        """Stop counting a job for the tenant and all tenants above it in the tree, because the job has ended
        or has changed its project.
        """
        for account in self._tenants_on(path):
            account.jobs -= 1
            if not account.jobs and account.path:
                self.accounts[account.path[:-1]].active[account.weight] -= 1

    def _tenants_on(self, path: SharePath) -> tuple[FairShareTenant, ...]:
        """Return the root of the fair-share tree and each tenant on the path. Add tenants that are not in the
        tree yet.
        """
        line = self._above.get(path)
        if line is None:
            self.add(path)
            line = self._above[path] = tuple(self.accounts[path[:depth]] for depth in range(len(path) + 1))
        return line

    def fair_rate(self, path: SharePath, capacity: float) -> float:
        """Return the fair part of `capacity` (billing units per hour) for the tenant. Only tenants with
        waiting or running jobs get a part.
        """
        part = capacity
        for depth in range(1, len(path) + 1):
            above = self.accounts[path[: depth - 1]].active
            weights = math.fsum(weight * count for weight, count in above.items())
            part *= self.accounts[path[:depth]].weight / weights if weights else 0.0
        return part

    def change_rate(self, path: SharePath, rate: float, now: float) -> None:
        """Add `rate` (billing units per hour; may be negative) to the rate of use of a tenant and of all
        tenants above it in the tree, from the time `now` on.
        """
        if not rate:
            return
        for depth in range(len(path) + 1):
            self.accounts[path[:depth]].usage.change(rate, now)

    def set_weight(self, name: str, weight: float) -> None:
        """Set the weight of a tenant, which overrides scheduler.toml."""
        self.set_weights[name] = weight
        self._reweigh({name})

    def set_hour_weights(self, weights: Mapping[str, float]) -> None:
        """Set the weights of the tables [hours.NAME] in force. They replace the weights of [fair_share], but
        not weights that operators have set.
        """
        if weights != self.hour_weights:
            names = {*self.hour_weights, *weights}
            self.hour_weights = dict(weights)
            self._reweigh(names)

    def _reweigh(self, names: Container[str]) -> None:
        """Set the weight of each tenant with one of these names to the weight that is now in force for the
        tenant.
        """
        for path, account in self.accounts.items():
            if path and self.name(path) in names:
                above, weight = self.accounts[path[:-1]], self.weight(path)
                for each in (above.below, above.active) if account.jobs else (above.below,):
                    each[account.weight] -= 1
                    each[weight] += 1
                account.weight = weight
        self.version += 1

    def set_limits(self, name: str, soft: float | None, hard: float | None) -> None:
        """Set the limits of a tenant, which override the limits of scheduler.toml. None leaves a limit
        unchanged, and UNLIMITED removes it.
        """
        was = self.limits.get(name, (None, None))
        soft, hard = was[0] if soft is None else soft, was[1] if hard is None else hard
        self.limits[name] = soft, hard
        for limits, limit in ((self.soft, soft), (self.hard, hard)):
            if limit == UNLIMITED:
                limits.pop(name, None)
            elif limit is not None:
                limits[name] = limit
        self.version += 1

    def projects_set_live(self) -> set[str]:
        """Return the projects with a weight or limit that operators have set, for the project itself or for
        one of its users.
        """
        named = {name.partition("/")[0] for name in (*self.set_weights, *self.limits)}
        return named - self.sharing.organisations.keys()

    def used(self, path: SharePath, now: float) -> float:
        """Return the use of a tenant in billing units. It is the decayed use, plus the use in the next
        `held_hours` hours at the present rate. With the second part, running jobs count as soon as they
        start.
        """
        usage = self.accounts[path].usage
        return usage.total(now) + self.sharing.held_hours * usage.rate

    def above_share(self, name: str, now: float, among: Container[str] | None = None) -> bool:
        """Return whether a top-level tenant has used more than its fair part of the use of all top-level
        tenants. A top-level tenant is an organisation, or a project without an organisation. Tenants without
        waiting or running jobs are left out. With `among`, all tenants that are not in `among` are left out.
        """
        active = [
            share
            for path, share in self.accounts.items()
            if len(path) == 1 and share.jobs and (among is None or path[0] in among)
        ]
        used = {share.path[0]: self.used(share.path, now) for share in active}
        weights = {share.path[0]: share.weight for share in active}
        if name not in used:
            return False
        return used[name] * math.fsum(weights.values()) > weights[name] * math.fsum(used.values())

    def fairness(self, path: SharePath, now: float) -> tuple[float, ...]:
        """Return weight / (used + 1) of each tenant on the path, the top level first. Jobs of tenants with
        greater values start first.
        """
        return tuple(
            self.accounts[path[:depth]].weight / (self.used(path[:depth], now) + 1.0)
            for depth in range(1, len(path) + 1)
        )

    def factor(self, path: SharePath, capacity: float, now: float) -> float:
        """Return the fair-share factor of a job's priority. It is 1 without use, and decreases as the tenant
        uses more. Step 2 in the docstring of ShareTree has the formula.

        `capacity` is the charge for the whole cluster in billing units per hour.
        """
        shares_used, users = 0.0, 3 if path and path[0] in self.sharing.organisations else 2
        for depth in range(1, len(path) + 1):
            if depth == users:
                shares_used += USERS_COUNT * self.part_of_project(path, capacity, now)
                continue
            account, siblings = self.accounts[path[:depth]], self.accounts[path[: depth - 1]].weights
            fair = capacity * account.usage.longest_h * account.weight / siblings
            shares_used += self.used(account.path, now) / fair if fair > 0 else 0.0
        return math.exp2(-shares_used)

    def part_of_project(self, path: SharePath, capacity: float, now: float) -> float:
        """Return the use of the user at the end of the path, divided by the user's fair part of the use of
        its project. The result is 1 if the user has used exactly its fair part.

        Only users with jobs count for the parts. One hour of the whole cluster is added to the use of the
        project, so that the first jobs of a project count little.
        """
        project, user = self.accounts[path[:-1]], self.accounts[path]
        weights = math.fsum(weight * count for weight, count in project.active.items())
        fair = user.weight / max(weights, user.weight)
        used = self.used(project.path, now)
        return self.used(path, now) / (fair * (used + capacity)) if used else 0.0

    def over_soft_limit(self, path: SharePath, now: float) -> bool:
        """Return whether a tenant on the path (the organisation, the project or the user) is over its soft
        limit.
        """
        soft = self.soft
        return bool(soft) and any(
            self.used(path[:depth], now) > soft.get(self.name(path[:depth]), math.inf)
            for depth in range(1, len(path) + 1)
        )

    def at_hard_limit(self, path: SharePath, now: float) -> TenantAtLimit | None:
        """Return the tenant on the path (the organisation, the project or the user) that has reached its hard
        limit; None if there is none. If there are several, return the one that stays at its limit for the
        longest time.
        """
        found = None
        for depth in range(1, len(path) + 1) if self.hard else ():
            name, account = self.name(path[:depth]), self.accounts[path[:depth]]
            limit = self.hard.get(name)
            if limit is not None and (used := self.used(account.path, now)) >= limit:
                until = self._below(account.usage, limit, now)
                if found is None or until > found.until:
                    found = TenantAtLimit(account.path, name, used, limit, until)
        return found

    def falls_below(self, path: SharePath, limit: float, now: float, ends: Ends) -> float:
        """Return the time at which the use of the tenant falls below `limit`. Return NEVER if the use stays
        at or above `limit`.

        `ends` contains (expected end, rate of use in billing units per hour) of each running job, the
        earliest end first. It is assumed that no job starts.
        """
        usage, moment = copy.deepcopy(self.accounts[path].usage), now
        for end, rate in ends:
            at = self._below(usage, limit, moment)
            if at <= end:
                return at
            moment = max(moment, end)
            usage.change(-rate, moment)
        return self._below(usage, limit, moment)

    def _below(self, usage: DecayedUsage | WindowedUsage, limit: float, now: float) -> float:
        """Return the time at which the total of this counter falls below `limit`. The rate of use is assumed
        to stay the same. Return NEVER if the total stays at or above `limit`.
        """
        left = limit - self.sharing.held_hours * usage.rate
        return usage.falls_to(left, now) + SETTLED_S if left > 0 else math.inf
