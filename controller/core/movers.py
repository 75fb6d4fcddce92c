"""Who may be moved, and trying where to: on a copy of the nodes, by the code that places jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from controller.core.columns import Bools
from controller.core.events import Allocation
from controller.core.jobs import NEVER, Job
from controller.core.placement import Place, Placer, Shape
from controller.core.preemption import Search, grace_of
from controller.core.proposals import RebalanceRules, Relocation
from controller.core.state import State
from controller.core.victims import NOBODY, may_leave, ripe_at
from wire.words import WHOLE_GPU, JobState


class Movers:
    """The jobs that may be moved now, and a copy of the nodes on which places are kept for them one by one.

    What is kept there is what would be kept in earnest: the old and the new place of a job are both taken
    until it has left, so whatever fits here fits at every moment of the move.
    """

    MOST_TRIES: ClassVar[int] = 64
    """Sets of jobs tried for one that waits."""
    MOST_TRIES_IN_ALL: ClassVar[int] = 256
    name: ClassVar[str] = "rebalancing"

    def __init__(self, state: State, placer: Placer, rules: RebalanceRules) -> None:
        self.state = state
        self.placer = placer
        self.rules = rules
        self.stuck: set[int] = set()
        """Jobs for which no other place was found while room was sought for one that waits."""
        self._rooted: set[int] = set()
        """Those of them for which there is none, whoever waits."""
        self._tries_left = self.MOST_TRIES_IN_ALL
        self._guards = placer.pipeline.guards
        self._nodes = state.nodes.copied()
        self._there = Placer(self._nodes, placer.pipeline)
        self._kept: list[tuple[int, str]] = []
        self._blocked: list[str] = []
        self._search: Search | None = None

    def standing(self, job: Job) -> float:
        """Who may be moved stands at nothing, all others out of reach."""
        return 0.0 if self._movable(job) and job.id not in self.stuck else NEVER

    def reach(self, _job: Job) -> float | None:
        """Everybody who may be moved."""
        return 0.0

    def _movable(self, job: Job) -> bool:
        nodes = self.state.nodes.by_name
        return (
            job.state is JobState.RUNNING
            and not job.spec.gang.elastic  # it can give up a node without stopping
            and (self.rules.without_checkpoint or job.spec.saves or job.checkpoint is not None)
            and all(nodes[member.allocation.node].up for member in job.running)
        )

    def on(self, node: str, now: float) -> list[Job]:
        """The jobs on a node that may be moved now, those that lose least first."""
        jobs = [self.state.jobs[each] for each in self.state.nodes.by_name[node].held]
        found = [
            job
            for job in jobs
            if self._movable(job) and may_leave(job, self._guards) and ripe_at(job, self._guards) <= now
        ]
        return sorted(found, key=lambda job: (job.unsaved(now), job.id))

    def search(self, now: float) -> Search:
        """Finds who has to move for somebody who waits, those that lose least."""
        if self._search is None:
            self._search = Search(self.state, self.placer, self, lambda _: self._guards)
            self._search.sync((), now)
        return self._search

    def tries(self) -> Iterator[int]:
        """One for each set of jobs that may be tried for somebody who waits."""
        for number in range(min(self.MOST_TRIES, self._tries_left)):
            self._tries_left -= 1
            yield number

    def give_up(self, job: Job, now: float) -> None:
        """The search goes on without this one."""
        self.stuck.add(job.id)
        if self.move(job, now) is None:
            self._rooted.add(job.id)
        self.let_go()
        self.search(now).sync((job.id,), now)

    def begin_anew(self, now: float) -> None:
        """Somebody else's turn: those may be moved again who had no place only beside the one before."""
        freed, self.stuck = self.stuck - self._rooted, set(self._rooted)
        if freed:
            self.search(now).sync(freed, now)

    def barred(self, job: Job, shape: Shape, now: float) -> Bools | None:
        """Nodes that a waiting job could not use even if there were room."""
        barred = self.state.barred(job, now, self._guards.grace_s)
        if shape.part.social:
            nodes = self.state.nodes
            unsuited = ~nodes.company.keep(shape.part, nodes.columns)
            barred = unsuited if barred is None else barred | unsuited
        return barred

    def keep(self, job: int, place: Place, leavers: list[int]) -> None:
        """Keep a place on the copy, in which those who leave still are."""
        part = self.state.jobs[job].ask.part
        for allocation in place.allocations:
            self._nodes.claim(job, allocation, leavers)
            self._kept.append((job, allocation.node))
            if part.social:
                self._nodes.company.enter(part, allocation.node)

    def move(self, job: Job, now: float, barred: Bools | None = None) -> Relocation | None:
        """Find the job another place, and keep it on the copy; None: there is none."""
        until = now + grace_of(job, self._guards)
        kept_out = self.state.barred(job, now, until - now)
        if barred is not None:
            kept_out = barred if kept_out is None else barred | kept_out
        place = self._there.find(job.ask, kept_out)
        if place is None:
            return None
        self.keep(job.id, place, [job.id])
        origin = tuple(member.allocation for member in job.running)
        restart = self.rules.restart_s / 3_600 * job.gpu_milli / WHOLE_GPU
        cost = job.unsaved(now) + restart
        return Relocation(job.id, job.attempt, origin, place.allocations, place.quality, cost, until)

    def move_all(self, jobs: Sequence[Job], now: float, barred: Bools | None = None) -> list[Relocation]:
        """The same for each of these for which there is another place."""
        return [move for job in jobs if (move := self.move(job, now, barred)) is not None]

    def block(self, allocation: Allocation) -> None:
        """Nobody gets this on the copy."""
        self._nodes.claim(NOBODY, allocation, ())
        self._blocked.append(allocation.node)

    def let_go(self) -> None:
        """Keep nothing on the copy any more."""
        for node in self._blocked:
            self._nodes.unclaim(NOBODY, node)
        self._blocked.clear()
        for job, node in reversed(self._kept):
            self._nodes.unclaim(job, node)
            part = self.state.jobs[job].ask.part
            if part.social:
                self._nodes.company.leave(part, node)
        self._kept.clear()
