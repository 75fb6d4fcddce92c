"""Who may have how much: limits looked up once, then compared with what the accounts say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from controller.core.accounts import (
    CPU,
    GPU,
    GPU_TIME,
    HOUR_S,
    MEMORY,
    QUEUED,
    RUNNING,
    WEEK_S,
    Account,
    Accounts,
    Amount,
    Key,
)
from wire.quota import EVERYBODY, NOTHING, SCOPES, UNLIMITED, Limits, Quota
from wire.spec import JobSpec, gpus_text
from wire.text import memory, plain
from wire.words import WHOLE_GPU, Reason

GPU_HOUR = WHOLE_GPU * HOUR_S

Bound = tuple[int, int]
"""(place in an amount, limit)."""


class QuotaProvider(Protocol):
    """Says what a tenant may have. Deterministic; asked once per tenant, and again after an edit."""

    name: ClassVar[str]

    def quota(self, scope: str, name: str) -> Quota | None:
        """What is stated for this user, project or queue; "*" stands for those without words of their own."""
        ...

    def names(self, scope: str) -> Iterator[str]:
        """All for which something is stated, "*" apart."""
        ...


@dataclass(frozen=True, slots=True)
class QueueRule:
    """What a queue demands of its jobs, and gives them."""

    priority: int = 0
    max_running: int | None = None
    default_time_limit_s: float | None = None
    max_time_limit_s: float | None = None
    users: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    select: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unlimited:
    """The provider of those who state nothing."""

    name: ClassVar[str] = "unlimited"

    def quota(self, _scope: str, _name: str) -> Quota | None:
        """Nothing."""
        return None

    def names(self, _scope: str) -> Iterator[str]:
        """Nobody."""
        return iter(())


@dataclass(frozen=True, slots=True)
class Rules:
    """What the configuration says about who may have what."""

    queues: Mapping[str, QueueRule] = field(default_factory=dict)
    provider: QuotaProvider = field(default_factory=Unlimited)
    window_s: float = WEEK_S
    licences: Mapping[str, int] = field(default_factory=dict)
    """How many there are of each."""

    @property
    def silent(self) -> bool:
        """Nobody is limited by anything here."""
        return isinstance(self.provider, Unlimited) and not any(
            rule.max_running is not None for rule in self.queues.values()
        )


NO_RULES = Rules()


@dataclass(frozen=True, slots=True)
class Over:
    """A limit that stands in the way: whose, of what, how much is used, asked for and allowed."""

    key: Key
    place: int
    used: int
    asked: int
    limit: int
    lent: bool = False
    reason: ClassVar[Reason] = Reason.QUOTA

    @property
    def alone(self) -> bool:
        """May jobs behind it in the lane start although it may not? They may take less time."""
        return self.place == GPU_TIME

    def __str__(self) -> str:
        used, limit = _told(self.place, self.used), _told(self.place, self.limit)
        told = f"{self._name}: {used} of {limit} in use{self._asked}"
        return f"{told}, with all that projects may lend each other" if self.lent else told

    @property
    def never(self) -> str:
        """The same about what would break the limit even if nothing else were in use."""
        return f"{self._name} is {_told(self.place, self.limit)}{self._asked}"

    @property
    def _name(self) -> str:
        scope, name = self.key
        return f"the quota of {scope} {plain(name)!r} on {_NAMES[self.place]}"

    @property
    def _asked(self) -> str:
        counted = self.place in (RUNNING, QUEUED)
        return "" if counted else f", and this asks for {_told(self.place, self.asked)}"


_NAMES = {
    CPU: "CPUs",
    MEMORY: "memory",
    GPU: "GPUs",
    RUNNING: "running jobs",
    QUEUED: "queued jobs",
    GPU_TIME: "GPU-hours",
}


def _told(place: int, amount: int) -> str:
    if place == CPU:
        return f"{amount / 1000:g}"
    if place == MEMORY:
        return memory(amount)
    if place == GPU:
        return gpus_text(amount / WHOLE_GPU)
    return f"{amount / GPU_HOUR:.4g}" if place == GPU_TIME else str(amount)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one tenant, ready to be compared."""

    hard: tuple[Bound, ...] = ()
    soft: tuple[Bound, ...] = ()
    lent: Mapping[int, int] = field(default_factory=dict)
    """By place, how much may be borrowed beyond `hard`."""


NOBODYS: Mapping[Key, list[int]] = {}


class Quotas:
    """The limits in effect: what the configuration states, with live edits laid over it."""

    def __init__(self, accounts: Accounts) -> None:
        self.accounts = accounts
        self.edits: dict[Key, Quota] = {}
        """Changed while running; kept as notes."""
        self.edition = 0
        """Grows with every edit: what was over a limit may no longer be."""
        self.rules = NO_RULES
        self._silent = True
        self.tiered = False
        """Some queue comes before others."""
        self.graded = False
        """Somebody has a soft limit, or may borrow: who is beyond comes after everybody else."""
        self._bounds: dict[Key, Bounds] = {}
        self._lenders: dict[int, tuple[tuple[Account, int], ...]] = {}

    def adopt(self, rules: Rules) -> None:
        """The configuration that holds from now on."""
        self.rules = rules
        self._forget()

    def edit(self, key: Key, quota: Quota | None) -> None:
        """Lay a quota over what the configuration states; None takes the edit back."""
        if quota is None:
            self.edits.pop(key, None)
        else:
            self.edits[key] = quota
        self._forget()

    def _forget(self) -> None:
        self._silent = self.rules.silent and not self.edits
        self.tiered = any(rule.priority for rule in self.rules.queues.values())
        everything = [*self.edits.values(), *self._stated()]
        self.graded = any(each.soft != NOTHING or each.borrow != NOTHING for each in everything)
        self._bounds.clear()
        self._lenders.clear()
        self.edition += 1

    def _stated(self) -> Iterator[Quota]:
        """All that the configuration states."""
        provider = self.rules.provider
        for scope in SCOPES:
            for name in (EVERYBODY, *provider.names(scope)):
                found = provider.quota(scope, name)
                if found is not None:
                    yield found

    @property
    def silent(self) -> bool:
        """Nobody is limited by anything."""
        return self._silent

    def quota(self, key: Key) -> Quota:
        """The quota in effect: edits over the configuration, a name of its own over "*"."""
        scope, name = key
        everybody = scope, EVERYBODY
        stated = self.rules.provider.quota
        found = Quota()
        for each in (self.edits.get(key), stated(*key), self.edits.get(everybody), stated(*everybody)):
            if each is not None:
                found = found.over(each)
        rule = self.rules.queues.get(name) if scope == "queue" else None
        if rule is not None and rule.max_running is not None:
            running = found.hard.running
            if running is None or running == UNLIMITED or running > rule.max_running:
                found = Quota(Limits(running=rule.max_running).over(found.hard), found.soft, found.borrow)
        return found

    def names(self) -> list[Key]:
        """Every tenant about whom something is stated, those of "*" included."""
        keys = {*self.edits}
        for scope in SCOPES:
            keys |= {(scope, name) for name in self.rules.provider.names(scope)}
            if self.rules.provider.quota(scope, EVERYBODY) is not None:
                keys.add((scope, EVERYBODY))
        keys |= {("queue", name) for name, rule in self.rules.queues.items() if rule.max_running is not None}
        return sorted(keys, key=lambda key: (SCOPES.index(key[0]), key[1] != EVERYBODY, key[1]))

    def bounds(self, key: Key) -> Bounds:
        """The same, ready to be compared; remembered until the next edit."""
        found = self._bounds.get(key)
        if found is None:
            quota = self.quota(key)
            found = Bounds(_bounds(quota.hard), _bounds(quota.soft), dict(_bounds(quota.borrow)))
            self._bounds[key] = found
        return found

    def over_hard(
        self, user: str, spec: JobSpec, need: Amount, now: float, kept: Mapping[Key, list[int]] = NOBODYS
    ) -> Over | None:
        """The first hard limit that so much more would break beside what is `kept` already; None if none."""
        if self._silent:
            return None
        for account in self.accounts.of(user, spec):
            bounds = self.bounds(account.key)
            for place, limit in bounds.hard:
                if need[place]:
                    used = account.amount(place, now, self.accounts.window_s)
                    used += kept[account.key][place] if account.key in kept else 0
                    if used + need[place] > limit:
                        over = self._over_loan(account, bounds, place, used, need[place], limit)
                        if over is not None:
                            return over
        return None

    def never(self, user: str, spec: JobSpec, need: Amount) -> Over | None:
        """A hard limit that this would break even if its tenant held nothing."""
        if self._silent:
            return None
        for account in self.accounts.of(user, spec):
            bounds = self.bounds(account.key)
            for place, limit in bounds.hard:
                if need[place] > limit + bounds.lent.get(place, 0):
                    return Over(account.key, place, account.used[place], need[place], limit)
        return None

    def over_soft(self, user: str, spec: JobSpec, need: Amount, now: float) -> Over | None:
        """The first soft limit that this passes, or hard limit that it passes by borrowing."""
        if not self.graded:
            return None
        for account in self.accounts.of(user, spec):
            bounds = self.bounds(account.key)
            for place, limit in (*bounds.soft, *(each for each in bounds.hard if each[0] in bounds.lent)):
                # How long a job may take must not tell it from others of its class.
                more = 1 if place == GPU_TIME else need[place]
                used = account.amount(place, now, self.accounts.window_s)
                if more and used + more > limit:
                    return Over(account.key, place, used, need[place], limit)
        return None

    def borrows(self, user: str, spec: JobSpec, need: Amount, now: float) -> bool:
        """Does this pass a hard limit by borrowing?"""
        if not self.graded:
            return False
        account = self.accounts.of(user, spec)[1]
        bounds = self.bounds(account.key)
        return any(
            place in bounds.lent
            and need[place]
            and account.amount(place, now, self.accounts.window_s) + need[place] > limit
            for place, limit in bounds.hard
        )

    def _over_loan(
        self, account: Account, bounds: Bounds, place: int, used: int, need: int, limit: int
    ) -> Over | None:
        """Why what passes a limit cannot be borrowed; None if it can."""
        lent = bounds.lent.get(place, 0)
        if not lent:
            return Over(account.key, place, used, need, limit)
        if used + need > limit + lent:
            return Over(account.key, place, used, need, limit + lent)
        lenders = self._lenders_of(place)
        held, stated = sum(each.used[place] for each, _ in lenders), sum(part for _, part in lenders)
        return Over(account.key, place, held, need, stated, lent=True) if held + need > stated else None

    def _lenders_of(self, place: int) -> tuple[tuple[Account, int], ...]:
        """The projects with a limit of their own, among which is borrowed."""
        found = self._lenders.get(place)
        if found is None:
            own = {name for scope, name in self.edits if scope == "project"}
            own |= {*self.rules.provider.names("project")}
            named = [("project", name) for name in sorted(own - {EVERYBODY})]
            found = self._lenders[place] = tuple(
                (self.accounts.account(key), limit)
                for key in named
                for at, limit in self.bounds(key).hard
                if at == place
            )
        return found


def _bounds(limits: Limits) -> tuple[Bound, ...]:
    given = (
        (CPU, limits.cpu_milli, 1),
        (MEMORY, limits.memory_mib, 1),
        (GPU, limits.gpus, WHOLE_GPU),
        (RUNNING, limits.running, 1),
        (QUEUED, limits.queued, 1),
        (GPU_TIME, limits.gpu_hours, GPU_HOUR),
    )
    return tuple(
        (place, round(value * unit))
        for place, value, unit in given
        if value is not None and value != UNLIMITED
    )


def need_of(cpu_milli: int, memory_mib: int, gpu_milli: int, limit_s: float, window_s: float) -> Amount:
    """What a job that gets so much counts for once it runs."""
    return cpu_milli, memory_mib, gpu_milli, 1, 0, round(gpu_milli * min(limit_s, window_s))
