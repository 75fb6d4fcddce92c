"""The schedulers of all profiles, side by side on one state: one after the other, in a stated order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from controller.core.book import Book
from controller.core.common import Common
from controller.core.cycle import Cycle, Step
from controller.core.jobs import Job
from controller.core.placement import Placer
from controller.core.plugin import Guards, Pipeline
from controller.core.state import State

ROUNDS = 4
"""How often a pass begins anew because a promise has gone or moved, of which somebody may make use."""


class Schedulers:
    """A cycle for each profile, in the order of the configuration, the default one last.

    Where nodes are shared, all write their promises in one book. A cluster without profiles has one cycle
    and no book.
    """

    def __init__(self, state: State, pipeline: Pipeline) -> None:
        self._state = state
        self._profiles = {each.name: each for each in pipeline.profiles}
        self.guards = pipeline.guards
        self.cycles: dict[str, Cycle] = {
            each.name: self._cycle(replace(each.pipeline, estimating=pipeline.estimating), each.name)
            for each in pipeline.profiles
        } or {"": self._cycle(pipeline, "")}
        self.last = next(reversed(self.cycles.values()))
        """Of those for whom there is no other."""
        self._book = Book(state)
        self._commons = {
            name: Common(state, cycle.placer, cycle.lasts, self._book)
            for name, cycle in self.cycles.items()
            if len(self.cycles) > 1
        }
        self._layout = -1

    def _cycle(self, pipeline: Pipeline, name: str) -> Cycle:
        guards_of = self.guards_of if self._profiles else None
        return Cycle(self._state, Placer(self._state.nodes, pipeline), name, guards_of)

    def of(self, job: Job) -> Cycle:
        """The cycle that decides about the job."""
        return self.cycles.get(job.profile, self.last)

    def named(self, profile: str) -> Cycle:
        """The cycle of a profile."""
        return self.cycles.get(profile, self.last)

    def guards_of(self, job: Job) -> Guards:
        """What protects the job while it runs: what its own profile says."""
        profile = self._profiles.get(job.profile)
        return self.guards if profile is None else profile.policy.guards

    def run(self, now: float) -> Iterator[Step]:
        """One pass of each; the caller makes each step true before asking for the next."""
        outlived = list(self.last.outlived(now))
        yield from outlived
        if not self._commons:
            yield from self.last.run(now, late=bool(outlived))
            return
        self._part()
        for each in self._commons.values():
            each.plan.forget_gone()
        self._book.turn_to(now)
        for _ in range(ROUNDS):
            edition = self._book.edition
            for cycle in self.cycles.values():
                yield from cycle.run(now, late=bool(outlived))
            if self._book.edition == edition:
                return

    def _part(self) -> None:
        """Who shares nodes with whom, after nodes have come, gone or changed."""
        columns = self._state.nodes.columns
        if self._layout == self._state.nodes.layout:
            return
        self._layout = self._state.nodes.layout
        rows = {name: profile.rows(columns) for name, profile in self._profiles.items()}
        for name, cycle in self.cycles.items():
            shares = any((rows[name] & rows[other]).any() for other in rows if other != name)
            licences = bool(self._state.licences.total)  # these are for all, wherever they run
            cycle.share(self._commons[name] if shares or licences else None)

    def resume(self, other: Schedulers) -> None:
        """Make good what others have promised, on a copy of their state."""
        if self._commons:
            self._part()
        for name, cycle in self.cycles.items():
            cycle.resume(other.cycles[name])

    def forget(self, job: int) -> None:
        """What was promised to a waiting job holds no longer: it asks for something else."""
        for cycle in self.cycles.values():
            cycle.forget(job)

    def stir(self, job: int) -> None:
        """A running job would now lose more or less than it did."""
        for cycle in self.cycles.values():
            if cycle.placer.pipeline.strategies:
                cycle.preemption.stir(job)

    @property
    def rests_until(self) -> float:
        """When a limit or a guard lets somebody in next."""
        cycles = self.cycles.values()
        return min(min(cycle.preemption.again_at, cycle.allowance.again_at) for cycle in cycles)

    @property
    def again_at(self) -> float:
        """When something changes for somebody if nothing but time passes."""
        at = min(cycle.again_at for cycle in self.cycles.values())
        return min(at, self._book.next_at) if self._commons else at
