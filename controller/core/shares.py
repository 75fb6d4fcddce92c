"""Who may use how much, and who did: organisations, their projects, the projects' users."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from controller.core.events import Allocation
from controller.core.usage import Fading, Windowed
from wire.frames import GpuHold, NodeFacts
from wire.quota import UNLIMITED
from wire.spec import storable
from wire.text import plain
from wire.words import WHOLE_GPU, Reason

SETTLED_S = 1.0
"""So long after use has come down to a limit it is surely below it, whatever was rounded."""
NOTHING = Allocation("", 0, 0)
Ends = Sequence[tuple[float, float]]
Path = tuple[str, ...]
"""From the top: (organisation, project, user), or (project, user) for a project of no organisation."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """How use is counted and shared; the defaults are those of an empty scheduler.toml."""

    half_life_s: float = 86_400.0
    window_s: float | None = None
    """Count what lies within, whole, and nothing older; instead of the half-life."""
    billing: Mapping[str, float] = field(default_factory=lambda: {"gpu": 1.0})
    """Units per hour of a CPU (`cpu`), a GiB (`memory`), a GPU (`gpu`), or one of a model (`gpu.H100`)."""
    dominant: bool = False
    """Only the resource that costs most counts, not the sum of all."""
    held_hours: float = 1.0
    """What a tenant holds counts as if it had been used for so long already."""
    organisations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The projects of each."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """By organisation, project, or `project/user`; 1 where nothing is said."""
    soft: Mapping[str, float] = field(default_factory=dict)
    """Units beyond which a tenant's jobs come after everybody else's."""
    hard: Mapping[str, float] = field(default_factory=dict)
    """Units from which on nothing of a tenant starts."""
    off_queue: str = ""
    """The project whose users are charged for GPUs that they use past the queue; nobody if empty."""

    @property
    def by_model(self) -> bool:
        """Does it matter which GPUs they are?"""
        return any(name.startswith("gpu.") for name in self.billing)

    def usage(self) -> Fading | Windowed:
        """Nothing used yet."""
        return Fading(self.half_life_s) if self.window_s is None else Windowed(self.window_s)

    def charge_whole(self, facts: NodeFacts) -> float:
        """Units per hour for all that a node has."""
        held = tuple(GpuHold(gpu.uuid, WHOLE_GPU) for gpu in facts.gpus)
        models = {gpu.uuid: gpu.model for gpu in facts.gpus}
        return self.charge(Allocation("", facts.cpu_milli, facts.memory_mib, held), models)

    def charges(
        self, allocations: Iterable[Allocation], models: Callable[[str], Mapping[str, str]]
    ) -> Iterator[float]:
        """The same for each of these; `models` by node. Most gangs hold the same everywhere."""
        last, charge = NOTHING, 0.0
        for allocation in allocations:
            alike = (allocation.cpu_milli, allocation.memory_mib) == (last.cpu_milli, last.memory_mib)
            if not alike or allocation.gpus or last.gpus:
                charge = self.charge(allocation, models(allocation.node) if self.by_model else {})
            last = allocation
            yield charge

    def charge(self, allocation: Allocation, models: Mapping[str, str]) -> float:
        """Units per hour for what is held on one node; `models` by GPU."""
        billing = self.billing
        gpu = sum(self._price(models.get(each.uuid, "")) * each.milli / WHOLE_GPU for each in allocation.gpus)
        parts = (
            billing.get("cpu", 0.0) * allocation.cpu_milli / 1000,
            billing.get("memory", 0.0) * allocation.memory_mib / 1024,
            gpu,
        )
        return max(parts) if self.dominant else sum(parts)

    def dearest(self, cpu_milli: int, memory_mib: int, gpu_milli: int, models: Iterable[str]) -> float:
        """Units per hour for as much, whichever of these models the GPUs are."""
        dearest = max(models, key=self._price, default="")
        hold = GpuHold("", gpu_milli)
        return self.charge(Allocation("", cpu_milli, memory_mib, (hold,)), {"": dearest})

    def _price(self, model: str) -> float:
        return self.billing.get(f"gpu.{model}", self.billing.get("gpu", 0.0))


HEAVIEST = 1_000_000.0
MOST_UNITS = 1e12


def share_problem(
    name: str, weight: float | None, soft: float | None, hard: float | None
) -> tuple[str, str] | None:
    """What is wrong with a share that somebody wants to set, and where."""
    if weight is not None and not 0 < weight <= HEAVIEST:
        return "weight", f"must be above 0 and at most {HEAVIEST:,.0f}"
    for where, limit in (("soft", soft), ("hard", hard)):
        if limit is not None and limit != UNLIMITED and not 0 <= limit <= MOST_UNITS:
            return where, f"must be units between 0 and {MOST_UNITS:,.0f}"
    if weight is None and soft is None and hard is None:
        return "weight", "is missing, and so are a soft and a hard limit: nothing would change"
    parts = name.split("/")
    if not storable(name) or len(name) > 400 or len(parts) > 2 or not all(parts):
        return "share", "must be an organisation, a project, or a project/user"
    return None


@dataclass(frozen=True, slots=True)
class Stopped:
    """A share at its hard limit: nothing of it starts until less counts."""

    path: Path
    name: str
    used: float
    limit: float
    until: float
    """If its use goes on as it is; maybe never."""
    reason: ClassVar[Reason] = Reason.SHARE
    alone: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"share {plain(self.name)!r} has used {self.used:.4g} of {self.limit:.4g} units"


@dataclass(slots=True)
class Account:
    """One place in the tree."""

    path: Path
    usage: Fading | Windowed
    weight: float = 1.0
    below: Counter[float] = field(default_factory=Counter)
    """The accounts right below, by weight."""
    jobs: int = field(default=0, compare=False)
    """Those that have not ended, its own and of all below it."""
    awake: Counter[float] = field(default_factory=Counter, compare=False)
    """The accounts right below that have such jobs, by weight."""

    @property
    def weights(self) -> float:
        """What the weights right below add up to, in whatever order they came."""
        return math.fsum(weight * count for weight, count in self.below.items())


class Shares:
    """The tree. An account comes with the first job of its tenant and stays."""

    def __init__(self, sharing: Sharing) -> None:
        self.sharing = sharing
        self.accounts: dict[Path, Account] = {(): Account((), sharing.usage())}
        self.live: dict[str, float] = {}
        """Weights that operators have set; they beat those of scheduler.toml."""
        self.limits: dict[str, tuple[float | None, float | None]] = {}
        """Soft and hard limits that operators have set; None: as scheduler.toml says."""
        self.edition = 0
        """Grows with everything that is set: who was stopped may no longer be, who owed nothing may now."""
        self.soft = dict(sharing.soft)
        self.hard = dict(sharing.hard)
        """The limits in effect."""
        self.fresh: list[Path] = []
        """Accounts that have no row yet."""
        self._lines: dict[Path, tuple[Account, ...]] = {}
        self._home = {name: name for name in sharing.organisations}
        for organisation, projects in sharing.organisations.items():
            self._home.update(dict.fromkeys(projects, organisation))

    def path(self, project: str, user: str) -> Path:
        """Where a tenant stands."""
        home = self._home.get(project)
        return (project, user) if home is None else (home, project, user)

    def name(self, path: Path) -> str:
        """What an account is called: an organisation or project by its name, a user as `project/user`."""
        return "/".join(path[1:] if len(path) > 1 and path[0] in self.sharing.organisations else path)

    def open(self, path: Path) -> None:
        """The tenant has an account from now on, and everybody above it."""
        for depth in range(1, len(path) + 1):
            if path[:depth] not in self.accounts:
                account = Account(path[:depth], self.sharing.usage(), self._weight(path[:depth]))
                self.accounts[path[:depth]] = account
                self.accounts[path[: depth - 1]].below[account.weight] += 1
                self.fresh.append(path[:depth])

    def _weight(self, path: Path) -> float:
        name = self.name(path)
        return self.live.get(name, self.sharing.weights.get(name, 1.0))

    def enter(self, path: Path) -> None:
        """The tenant has one job more."""
        for account in self._line(path):
            account.jobs += 1
            if account.jobs == 1 and account.path:
                self.accounts[account.path[:-1]].awake[account.weight] += 1

    def leave(self, path: Path) -> None:
        """One of the tenant's jobs has ended, or is somebody else's now."""
        for account in self._line(path):
            account.jobs -= 1
            if not account.jobs and account.path:
                self.accounts[account.path[:-1]].awake[account.weight] -= 1

    def _line(self, path: Path) -> tuple[Account, ...]:
        """The tenant's account and all above it, opened when first asked for."""
        line = self._lines.get(path)
        if line is None:
            self.open(path)
            line = self._lines[path] = tuple(self.accounts[path[:depth]] for depth in range(len(path) + 1))
        return line

    def fair(self, path: Path, capacity: float) -> float:
        """What the tenant may have at a time, beside all who have jobs: a part of a part of the cluster."""
        part = capacity
        for depth in range(1, len(path) + 1):
            above = self.accounts[path[: depth - 1]].awake
            weights = math.fsum(weight * count for weight, count in above.items())
            part *= self.accounts[path[:depth]].weight / weights if weights else 0.0
        return part

    def use(self, path: Path, rate: float, now: float) -> None:
        """A tenant, and everybody above it, uses so much more (or less) per hour."""
        if not rate:
            return
        for depth in range(len(path) + 1):
            self.accounts[path[:depth]].usage.change(rate, now)

    def reweigh(self, name: str, weight: float) -> None:
        """An operator has set a weight."""
        self.live[name] = weight
        for path, account in self.accounts.items():
            if path and self.name(path) == name:
                above = self.accounts[path[:-1]]
                for each in (above.below, above.awake) if account.jobs else (above.below,):
                    each[account.weight] -= 1
                    each[weight] += 1
                account.weight = weight
        self.edition += 1

    def limit(self, name: str, soft: float | None, hard: float | None) -> None:
        """An operator has set limits; None leaves one as it is."""
        was = self.limits.get(name, (None, None))
        soft, hard = was[0] if soft is None else soft, was[1] if hard is None else hard
        self.limits[name] = soft, hard
        for limits, limit in ((self.soft, soft), (self.hard, hard)):
            if limit == UNLIMITED:
                limits.pop(name, None)
            elif limit is not None:
                limits[name] = limit
        self.edition += 1

    def used(self, path: Path, now: float) -> float:
        """Units that count: those used, and those held for a while already."""
        usage = self.accounts[path].usage
        return usage.total(now) + self.sharing.held_hours * usage.rate

    def fairness(self, path: Path, now: float) -> tuple[float, ...]:
        """weight / (usage + 1) of everybody on the way down: the higher, the sooner."""
        return tuple(
            self.accounts[path[:depth]].weight / (self.used(path[:depth], now) + 1.0)
            for depth in range(1, len(path) + 1)
        )

    def factor(self, path: Path, capacity: float, now: float) -> float:
        """1 for who used nothing; halved by each fair share of the cluster used, at every level.

        `capacity` is what the whole cluster can give, in units per hour.
        """
        shares_used = 0.0
        for depth in range(1, len(path) + 1):
            account, siblings = self.accounts[path[:depth]], self.accounts[path[: depth - 1]].weights
            fair = capacity * account.usage.longest_h * account.weight / siblings
            shares_used += self.used(account.path, now) / fair if fair > 0 else 0.0
        return math.exp2(-shares_used)

    def beyond(self, path: Path, now: float) -> bool:
        """Has the tenant, or anybody above it, passed a soft limit?"""
        soft = self.soft
        return bool(soft) and any(
            self.used(path[:depth], now) > soft.get(self.name(path[:depth]), math.inf)
            for depth in range(1, len(path) + 1)
        )

    def stopped(self, path: Path, now: float) -> Stopped | None:
        """The hard limit that keeps the tenant longest: its own, or that of anybody above it."""
        found = None
        for depth in range(1, len(path) + 1) if self.hard else ():
            name, account = self.name(path[:depth]), self.accounts[path[:depth]]
            limit = self.hard.get(name)
            if limit is not None and (used := self.used(account.path, now)) >= limit:
                until = self._below(account.usage, limit, now)
                if found is None or until > found.until:
                    found = Stopped(account.path, name, used, limit, until)
        return found

    def falls_below(self, path: Path, limit: float, now: float, ends: Ends) -> float:
        """When less than this counts, if what uses it now ends like this: soonest first, with its rate."""
        usage, moment = copy.deepcopy(self.accounts[path].usage), now
        for end, rate in ends:
            at = self._below(usage, limit, moment)
            if at <= end:
                return at
            moment = max(moment, end)
            usage.change(-rate, moment)
        return self._below(usage, limit, moment)

    def _below(self, usage: Fading | Windowed, limit: float, now: float) -> float:
        """When less than this counts if its rate stays as it is."""
        left = limit - self.sharing.held_hours * usage.rate
        return usage.falls_to(left, now) + SETTLED_S if left > 0 else math.inf
