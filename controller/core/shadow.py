"""The moment the first waiting job can start at the latest, and what must stay free for it then."""

from __future__ import annotations

import heapq
from itertools import groupby
from operator import itemgetter

import numpy as np

from controller.core.columns import ABSENT, Bools
from controller.core.company import Company
from controller.core.events import Allocation
from controller.core.needs import needs_of
from controller.core.placement import Place, Placer, Shape
from controller.core.requests import Ask, Part, Wanted
from controller.core.state import State


class Shadow:
    """A promise: at `at`, `shape.nodes` nodes have room for the job it was made for.

    Whoever starts now and still runs then must not break it. `spare` counts the nodes with room beyond
    those needed: so many may be spoilt. What starts now and is gone by then changes nothing here.

    The room of the nodes at that moment is kept in plain lists: a look ahead touches single nodes one by
    one, for which arrays are slow.
    """

    def __init__(self, state: State, placer: Placer, shape: Shape, job: int) -> None:
        asked = state.jobs[job]
        self._against = state.reservations.against(asked.user, asked.spec.project)
        self._length = asked.span
        columns, part = state.nodes.columns, shape.part
        self.job = job
        self.at = 0.0
        self.spare = 0
        self._state = state
        self._shape = shape
        self._domains = placer.demanded(shape)
        self._fitting: set[int] = set(placer.ranking(part).rows)
        self._possible: list[bool] = placer.possible(part).tolist()
        self._cpu: list[int] = columns.cpu_free.tolist()
        self._memory: list[int] = columns.memory_free.tolist()
        self._scratch: list[int] = columns.scratch_free.tolist() if part.scratch_mib else []
        self._wants_gpus = part.wants_gpus
        self._plain = not (part.wants_gpus or part.scratch_mib)
        """CPU and memory alone are wanted."""
        self._gpus: list[list[int]] = columns.gpu_free.tolist() if self._wants_gpus else []
        self._models: list[list[int]] = columns.gpu_model.tolist() if self._wants_gpus else []
        self._needs = needs_of(part, columns)
        self._wanted = asked.ask.licences
        self._licences = {name: state.licences.free(name) for name, _ in self._wanted}
        """Free of those that the job needs, at that moment."""
        self._company = self._foreseen(part)
        if self._company is not None:  # a node may have room for it, and only the wrong company
            self._fitting = {row for row, may in enumerate(self._possible) if may and self._holds(row)}
        self._welcome: set[int] | None = None
        self._spoils: dict[Part, Bools | None] = {}

    def _foreseen(self, part: Part) -> Company | None:
        """Who will be where once all have left who have been told to; None if that is nothing to the part."""
        jobs, nodes = self._state.jobs, self._state.nodes
        if not part.social or not nodes.company.concerns(part):
            return None
        company = nodes.company.twin()
        for node in {each.node for job in self._state.claims for each in jobs[job].claim}:
            for victim in nodes.by_name[node].leaving:
                company.leave(jobs[victim].ask.part, node)
        return company

    def _leaves(self, company: Company, part: Part, allocations: list[Allocation]) -> None:
        if part.social:
            for allocation in allocations:
                company.leave(part, allocation.node)
            self._welcome = None

    def _suited(self) -> set[int]:
        """The nodes with room that are in the company it demands."""
        if self._company is None:
            return self._fitting
        if self._welcome is None:
            keeps = self._company.keep(self._shape.part, self._state.nodes.columns)
            self._welcome = set(np.flatnonzero(keeps).tolist())
        return self._fitting & self._welcome

    def advance(self, now: float) -> bool:
        """Go from release to release until the job fits; False if it never does."""
        if self._against:
            return self._advance_between(now)
        jobs = self._state.jobs
        returns, release = self._state.returns, self._release if self._plain else self._release_all
        for end, releases in groupby(self._state.releases, key=itemgetter(0)):
            for _, job in releases:
                returned = returns(jobs[job])
                release(returned)
                if self._company is not None:
                    self._leaves(self._company, jobs[job].ask.part, returned)
                if self._wanted:
                    self._lend(jobs[job].ask.licences, -1)
            if len(self._fitting) < self._shape.nodes or (self._wanted and not self.lends()):
                continue
            suited = self._suited()
            self.spare = self._count_spare(suited)
            if self.spare >= 0:
                self._fitting = suited
                self._count_relevant()
                self.at = max(end, now)
                return True
        return False

    def _advance_between(self, now: float) -> bool:
        """The same where reservations bar nodes for a time: the ends of these count as well."""
        turns = sorted({end for each in self._against for end in each.ends(now)})
        releases = iter(self._state.releases)
        release = next(releases, None)
        for moment in heapq.merge([now], turns, (end for end, _ in self._state.releases)):
            while release is not None and release[0] <= moment:
                returned = self._state.returns(self._state.jobs[release[1]])
                (self._release if self._plain else self._release_all)(returned)
                self._lend(self._state.jobs[release[1]].ask.licences, -1)
                if self._company is not None:
                    self._leaves(self._company, self._state.jobs[release[1]].ask.part, returned)
                release = next(releases, None)
            at = max(moment, now)
            barred = {
                row
                for each in self._against
                if each.meets(at, at + self._length)
                for row in self._state.reservations.rows(self._state.nodes, each)
            }
            suited = self._suited() - barred
            self.spare = self._count_spare(suited)
            if at > now and self.spare >= 0 and self.lends():
                self._fitting = suited
                self._count_relevant()
                self.at = at
                return True
        return False

    def stand_at(self, moment: float) -> bool:
        """Go to that moment; False if the job does not fit then."""
        state = self._state
        for end, job in state.releases:
            if end > moment:
                break
            returned = state.returns(state.jobs[job])
            (self._release if self._plain else self._release_all)(returned)
            if self._company is not None:
                self._leaves(self._company, state.jobs[job].ask.part, returned)
            if self._wanted:
                self._lend(state.jobs[job].ask.licences, -1)
        barred = {
            row
            for each in self._against
            if each.meets(moment, moment + self._length)
            for row in state.reservations.rows(state.nodes, each)
        }
        self._fitting = self._suited() - barred
        self.spare, self.at = self._count_spare(self._fitting), moment
        self._count_relevant()
        return self.spare >= 0 and self.lends()

    def lends(self, wanted: Wanted = ()) -> bool:
        """Are there licences enough for the promised job then, beside one that wants these?"""
        free = self._licences
        if not free:
            return True
        taken = dict(wanted)
        return all(free[name] - taken.get(name, 0) >= count for name, count in self._wanted)

    def lend(self, wanted: Wanted) -> None:
        """These are held past the time of the promise."""
        self._lend(wanted, 1)

    def _lend(self, wanted: Wanted, sign: int) -> None:
        for name, count in wanted:
            if name in self._licences:
                self._licences[name] -= sign * count

    def _count_spare(self, fitting: set[int]) -> int:
        """How many of these nodes may be spoilt before too few are left; negative: they are too few."""
        if len(fitting) < self._shape.nodes or self._domains is None:
            return len(fitting) - self._shape.nodes
        return self._domains.spare(fitting, self._shape.nodes)

    def _count_relevant(self) -> None:
        """Forget nodes that lie where too few others fit: nobody misses them."""
        if self._domains is not None:
            self._fitting = self._domains.relevant(self._fitting, self._shape.nodes)

    def _release(self, allocations: list[Allocation]) -> None:
        """Where CPU and memory alone are wanted. Nothing happens more often: it is all in one place."""
        by_name, possible, fitting = self._state.nodes.by_name, self._possible, self._fitting
        cpu, memory, part = self._cpu, self._memory, self._shape.part
        cpu_milli, memory_mib = part.cpu_milli, part.memory_mib
        for allocation in allocations:
            row = by_name[allocation.node].row
            if possible[row]:
                cpu[row] = cpu_there = cpu[row] + allocation.cpu_milli
                memory[row] = memory_there = memory[row] + allocation.memory_mib
                if cpu_there >= cpu_milli and memory_there >= memory_mib:
                    fitting.add(row)

    def _release_all(self, allocations: list[Allocation]) -> None:
        for allocation in allocations:
            row = self._state.nodes.by_name[allocation.node].row
            if self._possible[row]:
                self._give(row, allocation, 1)
                if row not in self._fitting and self._holds(row):
                    self._fitting.add(row)

    def _give(self, row: int, allocation: Allocation, sign: int) -> None:
        self._cpu[row] += sign * allocation.cpu_milli
        self._memory[row] += sign * allocation.memory_mib
        if self._scratch:
            self._scratch[row] += sign * allocation.scratch_mib
        if self._wants_gpus:
            gpus, slots = self._gpus[row], self._state.nodes.rows[row].slots
            for hold in allocation.gpus:
                slot = slots.get(hold.uuid)
                if slot is not None and gpus[slot] != ABSENT:
                    gpus[slot] += sign * hold.milli

    def _holds(self, row: int) -> bool:
        part = self._shape.part
        if self._cpu[row] < part.cpu_milli or self._memory[row] < part.memory_mib:
            return False
        if self._scratch and self._scratch[row] < part.scratch_mib:
            return False
        if not self._wants_gpus:
            return True
        return self._needs.met(self._gpus[row], self._models[row], row)

    def spoils(self, placer: Placer, part: Part, row: int) -> bool:
        """Would this node, then with room for the promised job, have none beside the part?"""
        if row not in self._fitting:
            return False
        wanted = self._shape.part
        if (
            self._cpu[row] - part.cpu_milli < wanted.cpu_milli
            or self._memory[row] - part.memory_mib < wanted.memory_mib
            or (self._scratch and self._scratch[row] - part.scratch_mib < wanted.scratch_mib)
        ):
            return True
        if not self._wants_gpus or not part.wants_gpus:
            return False
        allocation, _ = placer.allocate(part, self._state.nodes.rows[row])
        self._give(row, allocation, -1)
        fits = self._holds(row)
        self._give(row, allocation, 1)
        return not fits

    def spoilt(self, placer: Placer, part: Part, rows: list[int]) -> set[int]:
        """The nodes among these that the part would spoil."""
        fitting = self._fitting
        if not self._plain:
            return {row for row in rows if row in fitting and self.spoils(placer, part, row)}
        cpu, memory, wanted = self._cpu, self._memory, self._shape.part
        cpu_milli, memory_mib = part.cpu_milli + wanted.cpu_milli, part.memory_mib + wanted.memory_mib
        return {row for row in rows if row in fitting and (cpu[row] < cpu_milli or memory[row] < memory_mib)}

    def kept_from(self, part: Part, barred: Bools | None) -> Bools | None:
        """Where the part may not stay: what is barred, and where its company would not be wanted then."""
        wanted = self._shape.part
        if not part.social or not wanted.social:
            return barred
        if part not in self._spoils:
            nodes = self._state.nodes
            company = nodes.company if self._company is None else self._company
            self._spoils[part] = company.spoils(part, wanted, sorted(self._fitting), nodes.columns)
        spoilt = self._spoils[part]
        if spoilt is None:
            return barred
        return spoilt if barred is None else barred | spoilt

    def take(self, placer: Placer, part: Part, place: Place) -> None:
        """The place is taken past the time of the promise. Call it before the nodes know."""
        for allocation in place.allocations:
            row = self._state.nodes.by_name[allocation.node].row
            if self.spoils(placer, part, row):
                self._fitting.discard(row)
                self.spare = self.spare - 1 if self._domains is None else self._count_spare(self._fitting)
                self._count_relevant()
            self._give(row, allocation, -1)


def cast_shadow(state: State, placer: Placer, ask: Ask, job: int, now: float) -> Shadow | None:
    """The promise for a job that cannot start now; None if no release of a running job ever lets it."""
    shape = placer.shape(ask)
    if shape is None:
        return None
    shadow = Shadow(state, placer, shape, job)
    return shadow if shadow.advance(now) else None


def find_beside(placer: Placer, shape: Shape, shadow: Shadow, barred: Bools | None = None) -> Place | None:
    """The best place for something that outlasts the promise without breaking it."""
    if not placer.nodes.most.may_hold(shape.part):
        return None
    ranking = placer.ranking(shape.part)
    if ranking.count < shape.nodes:
        return None
    barred = shadow.kept_from(shape.part, barred)
    domains = placer.demanded(shape)
    if domains is not None:
        safe = ranking.in_order(barred)
        if shadow.spare < shape.nodes:
            safe = [row for row in safe if not shadow.spoils(placer, shape.part, row)]
        together = domains.choose(np.array(sorted(safe), dtype=np.intp), ranking.scores, shape.nodes)
        return placer.settle(shape, together) if together else None
    if shadow.spare >= shape.nodes:
        found = ranking.best(shape.nodes, barred)
        return placer.settle(shape, found) if len(found) == shape.nodes else None
    chosen: list[int] = []
    spoilt, spare = shadow.spoilt(placer, shape.part, ranking.rows), shadow.spare
    if ranking.count - len(spoilt) + spare < shape.nodes:
        return None  # before anybody asks which are best
    for row in ranking.in_order(barred):
        if row in spoilt:
            if not spare:
                continue
            spare -= 1
        chosen.append(row)
        if len(chosen) == shape.nodes:
            return placer.settle(shape, sorted(chosen))
    return None
