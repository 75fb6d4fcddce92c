"""Making room for the first waiting job: nobody is ended unless what is freed provably lets it start."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import ABSENT, Bools, joined
from controller.core.dues import Dues, Ground, Settling
from controller.core.events import PreemptionPlanned, Victim
from controller.core.gpus import quality_of
from controller.core.jobs import NEVER, Job
from controller.core.needs import needs_of
from controller.core.nodes import Node
from controller.core.placement import Place, Placer, Shape, concerned, kept
from controller.core.plugin import Guards, Strategy
from controller.core.requests import Part
from controller.core.room import Room, room_of
from controller.core.state import State
from controller.core.victims import GuardsOf, Offers, Victims

CLASSES_KEPT = 256
MOST_NODES = 64
"""Nodes that are looked at closely for one job beyond those it needs."""
MOST_SETS = 256
"""Sets of victims tried on one node for one that loses less than the first found."""
_SAME = 1 + 1e-9
_GPU_HOUR = 3_600_000.0
"""GPU-milli-seconds."""


UNGUARDED = Guards(min_runtime_s=0.0, max_per_job=1 << 30, cooldown_s=0.0, rate=1 << 30)


@dataclass(frozen=True, slots=True)
class NotAbove:
    """Whom somebody could ask to make room: everybody who is not more important."""

    name: ClassVar[str] = "asked"

    def standing(self, job: Job) -> float:
        """Its priority."""
        return job.spec.priority

    def reach(self, job: Job) -> float | None:
        """Its own priority."""
        return job.spec.priority


Leavers = Mapping[int, tuple[str, ...]]
"""Who has to leave which nodes; none named: all of them."""


@dataclass(frozen=True, slots=True)
class Freed:
    """A node on which the part fits once these have left."""

    loss: float
    row: int
    victims: tuple[int, ...]


class Preemption:
    """Finds the victims that lose least. Holds nothing that could not be worked out again from the state."""

    def __init__(
        self,
        state: State,
        placer: Placer,
        strategies: Iterable[Strategy],
        guards: Guards,
        guards_of: GuardsOf | None = None,
    ) -> None:
        self.again_at = NEVER
        """When a job that found nobody may find somebody, if nothing but time passes."""
        self._state = state
        self._placer = placer
        self._guards = guards
        self._guards_of = guards_of or (lambda _: guards)
        self._stirred: set[int] = set()
        self._searches = [Search(state, placer, each, self._guards_of) for each in strategies]

    def stir(self, job: int) -> None:
        """A running job would now lose more or less than it did."""
        self._stirred.add(job)

    def due(self, now: float) -> bool:
        """Has time alone changed what a job that found nobody may find? Told once."""
        due = self.again_at <= now
        if due:
            self.again_at = NEVER
        return due

    def plan(self, job: Job, now: float, elsewhere: Bools | None = None) -> PreemptionPlanned | None:
        """What to end so that the job starts there; None: nothing that may be ended is enough.

        Nodes that are `elsewhere` promised to others are left alone.
        """
        self.again_at = NEVER
        shape = self._placer.shape(job.ask)
        if shape is None:
            return None
        stirred, self._stirred = self._stirred, set()
        for search in self._searches:
            search.sync(stirred, now)
        barred = joined(elsewhere, self._state.barred(job, now, self._guards.grace_s))
        if shape.part.social:
            nodes = self._state.nodes
            barred = joined(barred, ~nodes.company.keep(shape.part, nodes.columns))
        for search in self._searches:
            found = search.find(job, shape, now, barred)
            if found is not None and found[1]:
                place, leavers = found
                return self._planned(job, place, leavers, search.strategy.name, now)
            self.again_at = min(self.again_at, search.again_at)
        return None

    def _planned(
        self, job: Job, place: Place, leavers: Leavers, strategy: str, now: float
    ) -> PreemptionPlanned | None:
        jobs = self._state.jobs
        recent, window = self._state.preempted_at, self._guards.window_s
        past = recent[bisect_right(recent, now, key=lambda at: at + window) :]
        if len(past) + len(leavers) > self._guards.rate:
            self.again_at = past[0] + window if past else NEVER
            return None
        return PreemptionPlanned(
            job.id,
            now,
            place.allocations,
            place.quality,
            tuple(
                Victim(victim, jobs[victim].unsaved(now, nodes), jobs[victim].attempt, nodes)
                for victim, nodes in sorted(leavers.items())
            ),
            strategy,
            max(now + self.grace(jobs[victim]) for victim in leavers),
        )

    def grace(self, job: Job) -> float:
        """How long a victim may take to go."""
        return grace_of(job, self._guards_of(job))

    def broken(self, job: Job) -> str:
        """Why what is kept for the job is of no use any more; empty while it is."""
        for allocation in job.claim:
            node = self._state.nodes.by_name[allocation.node]
            if node.drained or (not node.up and not node.expected):
                return f"node {node.name} is {node.state.value}"
            columns, row = self._state.nodes.columns, node.row
            for hold in allocation.gpus:
                slot = node.slots.get(hold.uuid)
                if slot is None or columns.gpu_free[row, slot] == ABSENT:
                    return f"a GPU of node {node.name} takes no work any more"
        return ""

    def ready(self, job: Job) -> bool:
        """Are all gone who held what is kept for the job, and are its nodes there?"""
        nodes = self._state.nodes.by_name
        gone = not job.unended  # itself, if it is moved
        return gone and all(
            nodes[each.node].up and job.id not in nodes[each.node].leaving.values() for each in job.claim
        )


def grace_of(job: Job, guards: Guards) -> float:
    """How long a job that is to make room may take: to save its state, and to end."""
    return max(job.spec.grace_s, guards.grace_s) + (job.spec.checkpoint_s if job.spec.saves else 0.0)


class Search:
    """The victims that one strategy allows."""

    def __init__(self, state: State, placer: Placer, strategy: Strategy, guards_of: GuardsOf) -> None:
        self.strategy = strategy
        self._state = state
        self._placer = placer
        self._settling = strategy if isinstance(strategy, Settling) else None
        self._victims = Victims(state, strategy, guards_of)
        self._offers: dict[tuple[Part, float], Offers] = {}

    def sync(self, stirred: Collection[int], now: float) -> None:
        """Bring what is known of running jobs up to the state."""
        self._victims.sync(stirred, now)

    @property
    def again_at(self) -> float:
        """When somebody next may be ended who may not be now."""
        return self._victims.ripe_at

    def find(self, job: Job, shape: Shape, now: float, barred: Bools | None) -> tuple[Place, Leavers] | None:
        """A place for the job on nodes that are not barred, and who has to leave for it."""
        reach = self.strategy.reach(job)
        if reach is None:
            return None
        if self._settling is None:
            return self._search(self._of(shape.part, reach), None, shape, now, barred)
        dues = self._settling.dues(job, Ground(self._state, self._placer, now))
        if dues is None:
            return None
        # What others owe changes with all that starts and ends: nothing of it is worth keeping.
        offers = Offers(shape.part, reach, self._victims, self._placer, dues)
        return self._search(offers, dues, shape, now, barred)

    def _search(
        self, offers: Offers, dues: Dues | None, shape: Shape, now: float, barred: Bools | None
    ) -> tuple[Place, Leavers] | None:
        for _ in range(MOST_NODES):
            chosen = self._chosen(offers, dues, shape, now, barred)
            if chosen is None:
                return None
            leavers = self._needed(shape.part, chosen, self._leavers(chosen), now)
            if dues is not None and not self._all_owed(dues, leavers):
                return None
            refused = [each.row for each in chosen if not self._kept(shape.part, each.row, leavers)]
            if not refused:
                return self._settle(shape, [each.row for each in chosen], leavers), leavers
            for row in refused:
                offers.rule_out(row)
        return None

    def _all_owed(self, dues: Dues, leavers: Leavers) -> bool:
        """May all of these go one after another? On several nodes they were looked at one by one."""
        jobs = sorted((self._state.jobs[job] for job in leavers), key=lambda job: (job.charge, job.id))
        return len([*dues.pick(jobs)]) == len(jobs)

    def _chosen(
        self, offers: Offers, dues: Dues | None, shape: Shape, now: float, barred: Bools | None
    ) -> list[Freed] | None:
        """As many nodes as are needed, those that lose least, in the order of rows."""
        freed: list[Freed] = []
        for loss, row in self._promising(offers, shape, now, barred):
            if len(freed) >= shape.nodes and loss * _SAME >= freed[shape.nodes - 1].loss:
                break
            found = self._free(row, shape.part, offers, dues, loss, now)
            if found is None:
                offers.rule_out(row)
            else:
                freed.append(found)
                freed.sort(key=lambda each: (each.loss, each.row))
        if len(freed) < shape.nodes:
            return None
        chosen = sorted(freed[: shape.nodes], key=lambda each: each.row)
        domains = self._placer.demanded(shape)
        if domains is not None and domains.spare([each.row for each in chosen], shape.nodes) < 0:
            return None
        return chosen

    def _of(self, part: Part, reach: float) -> Offers:
        offers = self._offers.get((part, reach))
        if offers is None:
            if len(self._offers) >= CLASSES_KEPT:
                self._offers.clear()
            offers = self._offers[part, reach] = Offers(part, reach, self._victims, self._placer)
        return offers

    @staticmethod
    def _promising(
        offers: Offers, shape: Shape, now: float, barred: Bools | None
    ) -> Iterator[tuple[float, int]]:
        """Rows by the least they could lose; among equals the first name."""
        losses = offers.losses(now)
        if barred is not None:
            losses = np.where(barred, np.inf, losses)
        for _ in range(min(len(losses), shape.nodes + MOST_NODES)):
            row = int(losses.argmin())
            loss = float(losses[row])
            if loss == np.inf:
                return
            yield loss, row
            losses[row] = np.inf

    def _free(
        self, row: int, part: Part, offers: Offers, dues: Dues | None, least: float, now: float
    ) -> Freed | None:
        """The victims on one node that lose least, out of those that are enough."""
        nodes, jobs = self._state.nodes, self._state.jobs
        node, needs = nodes.rows[row], needs_of(part, nodes.columns)
        loss = {
            job: jobs[job].unsaved(now, (node.name,) if jobs[job].spare(node.name) else ()) * _GPU_HOUR
            for job in self._willing(row, offers, dues, now)
        }
        room = room_of(nodes, row)
        chosen: list[int] = []
        for victim in loss:
            if room.holds(part, needs, row):
                break
            room.give(node, node.held[victim], 1)
            chosen.append(victim)
        if not room.holds(part, needs, row):
            return None
        for victim in sorted(chosen, key=lambda job: (-loss[job], job)):
            room.give(node, node.held[victim], -1)
            if room.holds(part, needs, row):
                chosen.remove(victim)
            else:
                room.give(node, node.held[victim], 1)
        total = sum(loss[job] for job in chosen)
        if total > least * _SAME:
            for cheaper in _by_loss(loss, total):
                if self._room(node, cheaper).holds(part, needs, row):
                    chosen, total = list(cheaper), sum(loss[job] for job in cheaper)
                    break
        return Freed(total, row, tuple(chosen))

    def _willing(self, row: int, offers: Offers, dues: Dues | None, now: float) -> list[int]:
        """The jobs of a node that may be ended for this, one after another."""
        willing = [job for job in offers.willing(row, now) if self._reachable(job)]
        if dues is None:
            return willing
        return [job.id for job in dues.pick(self._state.jobs[each] for each in willing)]

    def _reachable(self, job: int) -> bool:
        """Can all of it be told to stop?"""
        nodes = self._state.nodes.by_name
        return all(nodes[member.allocation.node].up for member in self._state.jobs[job].running)

    def _room(self, node: Node, victims: Iterable[int]) -> Room:
        """What the node has when these have left."""
        room = room_of(self._state.nodes, node.row)
        for victim in victims:
            allocation = node.held.get(victim)
            if allocation is not None and victim not in node.leaving:  # else its place here is somebody's
                room.give(node, allocation, 1)
        return room

    def _kept(self, part: Part, row: int, leavers: Leavers) -> bool:
        """Do the filters keep the node when these have left? Asked of the columns as they would be then."""
        columns, node = self._state.nodes.columns, self._state.nodes.rows[row]
        room = self._room(node, _at(node, leavers))
        before = columns.cpu_free[row], columns.memory_free[row], columns.scratch_free[row]
        gpus = columns.gpu_free[row].copy()
        columns.cpu_free[row], columns.memory_free[row] = room.cpu_milli, room.memory_mib
        columns.scratch_free[row] = room.scratch_mib
        if room.gpus:
            columns.gpu_free[row] = room.gpus
        try:
            rows = np.array([row], dtype=np.intp)
            return bool(kept(part, columns, rows, concerned(part, self._placer.pipeline))[0])
        finally:
            columns.cpu_free[row], columns.memory_free[row], columns.scratch_free[row] = before
            columns.gpu_free[row] = gpus

    def _leavers(self, chosen: list[Freed]) -> Leavers:
        """Who leaves which nodes: of an elastic job what can be spared, of any other all there is."""
        jobs, rows = self._state.jobs, self._state.nodes.rows
        leavers: dict[int, tuple[str, ...]] = {}
        for each in chosen:
            for victim in each.victims:
                leavers[victim] = (*leavers.get(victim, ()), rows[each.row].name)
        for victim, nodes in leavers.items():
            job = jobs[victim]
            least = job.spec.gang.min_nodes or 0
            if not all(job.spare(node) for node in nodes) or len(job.staying) - len(nodes) < least:
                leavers[victim] = ()
        return leavers

    def _needed(self, part: Part, chosen: list[Freed], leavers: Leavers, now: float) -> Leavers:
        """Of all victims those without whom some node would not do: one may hold something on several."""
        if len(chosen) > 1:
            for victim in sorted(leavers, key=lambda job: (-self._loss(job, leavers[job], now), job)):
                without = {job: nodes for job, nodes in leavers.items() if job != victim}
                if all(self._kept(part, each.row, without) for each in chosen):
                    leavers = without
        return leavers

    def _loss(self, victim: int, nodes: tuple[str, ...], now: float) -> float:
        return self._state.jobs[victim].unsaved(now, nodes)

    def _settle(self, shape: Shape, rows: list[int], leavers: Leavers) -> Place:
        nodes = self._state.nodes.rows
        got = [
            self._placer.allocate(shape.part, nodes[row], self._room(nodes[row], _at(nodes[row], leavers)))
            for row in rows
        ]
        quality = quality_of([choice for _, choice in got])
        return Place(tuple(allocation for allocation, _ in got), quality)


def _at(node: Node, leavers: Leavers) -> list[int]:
    """Those who leave this node."""
    return [job for job, nodes in leavers.items() if not nodes or node.name in nodes]


def _by_loss(loss: dict[int, float], below: float) -> Iterator[tuple[int, ...]]:
    """Sets of jobs that lose less than so much together, least first; not for ever."""
    jobs = sorted(loss, key=lambda job: (loss[job], job))
    heap: list[tuple[float, tuple[int, ...]]] = [(loss[job], (at,)) for at, job in enumerate(jobs[:1])]
    for _ in range(MOST_SETS):
        if not heap or heap[0][0] * _SAME >= below:
            return
        total, chosen = heapq.heappop(heap)
        yield tuple(jobs[at] for at in chosen)
        last = chosen[-1]
        if last + 1 < len(jobs):
            following = loss[jobs[last + 1]]
            heapq.heappush(heap, (total + following, (*chosen, last + 1)))
            heapq.heappush(heap, (total - loss[jobs[last]] + following, (*chosen[:-1], last + 1)))
