"""Who holds more than is theirs while somebody waits for what is: for strategies that weigh tenants."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from controller.core.accounts import CPU, GPU, MEMORY, RUNNING, Amount, held
from controller.core.admission import need_for
from controller.core.events import Allocation
from controller.core.jobs import Job, Member
from controller.core.placement import Placer
from controller.core.shares import Path

if TYPE_CHECKING:
    from controller.core.state import State

LENT = (CPU, MEMORY, GPU, RUNNING)
_NOISE = 1e-9


@dataclass(frozen=True, slots=True)
class Ground:
    """What a strategy may look at."""

    state: State
    placer: Placer
    now: float


class Dues(Protocol):
    """What running jobs may have to give back."""

    def owes(self, group: Hashable) -> bool:
        """Does this group of jobs hold more than is theirs?"""
        ...

    def pick(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Out of these, in this order, those that may go: each as long as theirs still hold too much."""
        ...


@runtime_checkable
class Settling(Protocol):
    """A strategy that also weighs tenants: whom it has ended depends on who asks and what all hold."""

    def group(self, job: Job, state: State) -> Hashable:
        """Jobs of one group owe alike; must not change while the job runs."""
        ...

    def dues(self, job: Job, ground: Ground) -> Dues | None:
        """Who owes something to this waiting job; None: nobody."""
        ...


def changing_hands(state: State) -> Iterator[tuple[Job, list[Allocation], int]]:
    """What is as good as gone (-1) from who is being ended for others, and as good as got (1) by those."""
    for claimant in (state.jobs[each] for each in state.claims):
        yield claimant, list(claimant.claim), 1
        for victim in claimant.claim_from:
            job = state.jobs.get(victim.job)
            if job is not None and job.attempt == victim.attempt and job.unended:
                going = [member.allocation for member in job.running if _leaves(state, job, member, claimant)]
                yield job, [each for each in going if not victim.nodes or each.node in victim.nodes], -1


def _leaves(state: State, job: Job, member: Member, claimant: Job) -> bool:
    """An elastic job may leave one node for somebody, and all others for somebody else."""
    leaving = state.nodes.by_name[member.allocation.node].leaving
    return leaving.get(job.id, claimant.id) == claimant.id


class FairDues:
    """By shares of the cluster: siblings in the tree are compared where two tenants part.

    Somebody may ask as long as their side, and all below it on the way to them, hold no more than their fair
    parts with this job as well. Those owe who hold more than `threshold` times theirs. So whoever was given
    room in this way owes none of it to anybody on that level.
    """

    def __init__(self, ground: Ground, job: Job, threshold: float) -> None:
        self._state = ground.state
        self._threshold = threshold
        self._path = ground.state.tenant(job)
        self._shifted = dict[Path, float]()
        for each, allocations, sign in changing_hands(ground.state):
            self._shift(ground.state.tenant(each), sign * self._charge(allocations))
        asked = self._asked(ground, job)
        depths = range(1, len(self._path) + 1)
        beyond = [
            depth
            for depth in depths
            if self._rate(self._path[:depth]) + asked > self._fair(self._path[:depth]) + _NOISE
        ]
        self._from = max(beyond, default=0) + 1
        """From this depth on downwards it is within its parts."""
        self.possible = self._from <= len(self._path)

    def _shift(self, path: Path, rate: float) -> None:
        for depth in range(1, len(path) + 1):
            self._shifted[path[:depth]] = self._shifted.get(path[:depth], 0.0) + rate

    def _charge(self, allocations: Iterable[Allocation]) -> float:
        nodes, sharing = self._state.nodes, self._state.shares.sharing
        return sum(
            sharing.charge(each, nodes.models(each.node) if sharing.by_model else {}) for each in allocations
        )

    def _asked(self, ground: Ground, job: Job) -> float:
        """What it costs per hour once it runs, on the dearest GPUs there are."""
        cpu, memory, gpu, *_ = need_for(ground.placer, job.ask, 0.0, 0.0)
        return self._state.shares.sharing.dearest(cpu, memory, gpu, ground.state.nodes.columns.models)

    def _rate(self, path: Path) -> float:
        return self._state.shares.accounts[path].usage.rate + self._shifted.get(path, 0.0)

    def _fair(self, path: Path) -> float:
        return self._state.shares.fair(path, self._state.capacity)

    def _side(self, path: Path) -> Path | None:
        """The tenant's side where it parts from who asks; None if that must not take from it."""
        for depth in range(1, min(len(path), len(self._path)) + 1):
            if path[:depth] != self._path[:depth]:
                return path[:depth] if depth >= self._from else None
        return None

    def _excess(self, side: Path) -> float:
        return self._rate(side) - self._threshold * self._fair(side)

    def owes(self, group: Hashable) -> bool:
        """Is the tenant on a side that holds far more than its part?"""
        assert isinstance(group, tuple)
        side = self._side(group)
        return side is not None and self._excess(side) > _NOISE

    def pick(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Each as long as its side still holds too much without it."""
        left = dict[Path, float]()
        for job in jobs:
            side = self._side(self._state.tenant(job))
            if side is not None and left.setdefault(side, self._excess(side)) > _NOISE:
                left[side] -= job.charge
                yield job


def fair_dues(ground: Ground, job: Job, threshold: float) -> Dues | None:
    """Who holds so many times their fair part, while this job would be within that of its own side."""
    dues = FairDues(ground, job, threshold)
    return dues if dues.possible else None


class LentDues:
    """By quotas of projects: who has borrowed gives back to a project that asks for no more than its own."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._places: tuple[int, ...] = ()
        self._lender = ""
        self._shifted: dict[str, list[int]] = {}
        for job, allocations, sign in changing_hands(state):
            shifted = self._shifted.setdefault(job.spec.project, [0] * len(held((), 0.0, 0.0)))
            for place, amount in enumerate(_amount(job, allocations)):
                shifted[place] += sign * amount
        self._known: dict[str, Mapping[int, int]] = {}

    def asked(self, project: str, need: Amount) -> bool:
        """May a job of this project that needs so much ask? It has to be within what is its project's own."""
        self._lender = project
        self._places = tuple(place for place in LENT if need[place])
        limits = [
            each for each in self._state.quotas.bounds(("project", project)).hard if each[0] in self._places
        ]
        return bool(limits) and all(
            self._used(project, place) + need[place] <= limit for place, limit in limits
        )

    def _used(self, project: str, place: int) -> int:
        account = self._state.accounts.by_key.get(("project", project))
        used = 0 if account is None else account.used[place]
        return used + (self._shifted[project][place] if project in self._shifted else 0)

    def _borrowed(self, project: str) -> Mapping[int, int]:
        """By place, how much it holds beyond its own limit of what is asked for."""
        found = self._known.get(project)
        if found is None:
            bounds = self._state.quotas.bounds(("project", project))
            found = self._known[project] = {
                place: beyond
                for place, limit in bounds.hard
                if place in bounds.lent
                and place in self._places
                and (beyond := self._used(project, place) - limit) > 0
            }
        return found

    def owes(self, group: Hashable) -> bool:
        """Has the project borrowed of what is asked for?"""
        return group != self._lender and bool(self._borrowed(str(group)))

    def pick(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Each as long as its project still has borrowed something that it holds."""
        left: dict[str, dict[int, int]] = {}
        for job in jobs:
            project = job.spec.project
            if not self.owes(project):
                continue
            borrowed = left.setdefault(project, dict(self._borrowed(project)))
            amount = _amount(job, [member.allocation for member in job.running])
            if any(beyond > 0 and amount[place] for place, beyond in borrowed.items()):
                for place in borrowed:
                    borrowed[place] -= amount[place]
                yield job


def lent_dues(ground: Ground, job: Job) -> Dues | None:
    """Who has borrowed, if this job is within what its project has for its own."""
    state = ground.state
    if state.quotas.silent:
        return None
    need = need_for(ground.placer, job.ask, job.spec.time_limit_s, state.accounts.window_s)
    dues = LentDues(state)
    return dues if dues.asked(job.spec.project, need) else None


def _amount(job: Job, allocations: Iterable[Allocation]) -> Amount:
    return held(allocations, job.limit, 0.0)
