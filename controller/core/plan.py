"""Conservative backfill: every waiting job has a promised start, and nothing that comes later delays it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from controller.core.events import Allocation
from controller.core.expected import Expected
from controller.core.gangs import ripe_from
from controller.core.gpus import quality_of
from controller.core.jobs import NEVER, Job
from controller.core.needs import Needs, needs_of
from controller.core.placement import Place, Placer, Shape
from controller.core.requests import Part, Wanted
from controller.core.reservations import Reservation, clear_from
from controller.core.room import Room, room_of
from controller.core.state import State
from controller.core.stocks import Stocks
from controller.core.timeline import Timeline

OVERDUE_S = 60.0
"""A running job past its limit is expected to be gone after this: ending takes its grace."""


@dataclass(frozen=True, slots=True)
class Promise:
    """When and where a waiting job starts at the latest."""

    start: float
    end: float
    place: Place
    part: Part
    in_part: bool = False
    licences: Wanted = ()


class Plan:
    """Timelines of all nodes with what runs and what is promised.

    A promise moves only forward: when room appears, jobs are taken in queue order, each is taken out and
    put back at its earliest hole, the others staying where they are. A promise for this very moment stays.
    """

    def __init__(self, state: State, placer: Placer, lasts: Callable[[Job], float]) -> None:
        self._lasts = lasts
        self.promises: dict[int, Promise] = {}
        self._state = state
        self._placer = placer
        self._lines: list[Timeline] = []
        self._running: dict[int, tuple[float, tuple[Allocation, ...], Wanted]] = {}
        self._stocks = Stocks(0.0, {})
        self._expected = Expected()
        self.refused: set[int] = set()
        """Those whose moment came in vain: no promise is made to them until something changes."""
        self._gains = -1
        self._turns = (-1, -1, -1)

    def resume(self, other: Plan) -> None:
        """Go on from what another has promised, on the same nodes; if that is void it stays so."""
        nodes, theirs = self._state.nodes, other._state
        if other._turns != (theirs.nodes.layout, theirs.nodes.turns, theirs.reservations.edition):
            return
        rows = nodes.rows
        self._lines = [line.twin(rows[line.node.row]) for line in other._lines]
        self._stocks, self._expected = other._stocks.twin(), other._expected.twin()
        self.refused = set(other.refused)
        self.promises, self._running = dict(other.promises), dict(other._running)
        self._turns = nodes.layout, nodes.turns, self._state.reservations.edition
        self._gains = nodes.gains if other._gains == theirs.nodes.gains else -1

    def update(self, may: Iterable[tuple[int, int | None]], now: float) -> None:
        """Bring the plan up to the state.

        `may` are the waiting jobs that may have a promise, in order, each with the most nodes it may have;
        None: all it asks for.
        """
        nodes = self._state.nodes
        order = dict(may)
        turns = nodes.layout, nodes.turns, self._state.reservations.edition
        if self._turns != turns or self._overdue(now):
            self._begin(now)
        else:
            for line in self._lines:
                line.forget(now)
            self._stocks.forget(now)
            self._follow_growth(now)
            for job in [job for job in self.promises if job not in order]:
                self._withdraw(job)
            if self._gains != nodes.gains:
                self._free(now)
                self._pull_forward(order, now)
        self._gains = nodes.gains
        for job, most in order.items():
            if job not in self.promises and job not in self.refused:
                self._promise(self._state.jobs[job], most, now)

    def forget(self, job: int) -> None:
        """The job has no promise any more; it gets another with the next update."""
        self.refused.discard(job)
        if job in self.promises:
            self._withdraw(job)

    def retry(self) -> None:
        """Who was refused may be luckier now."""
        self.refused.clear()

    def ripe_after(self, now: float) -> float:
        """The next promised start of a gang in part: nothing need happen then but that time has passed."""
        starts = (each.start for each in self.promises.values() if each.in_part and each.start > now)
        return min(starts, default=NEVER)

    def due(self, now: float) -> Iterator[tuple[int, Place]]:
        """Jobs whose promised moment has come; each is to be started before the next is asked for."""
        for job in [job for job, promise in self.promises.items() if promise.start <= now]:
            promise = self.promises.pop(job)
            self._expect(promise, -1)
            self._running[job] = promise.end, promise.place.allocations, promise.licences
            yield job, promise.place

    def _begin(self, now: float) -> None:
        """Start over from what runs: nodes came or changed, or a job outstays its limit."""
        state, nodes = self._state, self._state.nodes
        self._lines = [Timeline(node, now, room_of(nodes, node.row)) for node in nodes.rows]
        self._turns = nodes.layout, nodes.turns, state.reservations.edition
        licences = state.licences
        self._stocks = Stocks(now, {name: licences.free(name) for name in licences.total})
        self.promises.clear()
        self._expected = Expected()
        self.refused.clear()
        self._running.clear()
        for end, job in state.releases:
            allocations = tuple(state.returns(state.jobs[job]))
            end = end if end > now else now + OVERDUE_S
            wanted = state.jobs[job].ask.licences
            self._running[job] = end, allocations, wanted
            self._give(allocations, end, NEVER, 1)
            self._stocks.give(wanted, end, NEVER, 1)

    def _follow_growth(self, now: float) -> None:
        """Elastic jobs that run take nodes without any promise, while nobody waits."""
        for job in self._state.elastic:
            if job in self._running:
                end, known, wanted = self._running[job]
                there = {allocation.node for allocation in known}
                more = tuple(
                    each for each in self._state.returns(self._state.jobs[job]) if each.node not in there
                )
                self._give(more, now, end, -1)
                self._running[job] = end, (*known, *more), wanted

    def _overdue(self, now: float) -> bool:
        jobs = self._state.jobs
        return any(
            end <= now and job in jobs and jobs[job].unended for job, (end, *_) in self._running.items()
        )

    def _free(self, now: float) -> None:
        """Give back what ended before its time."""
        jobs = self._state.jobs
        for job in [job for job in self._running if job not in jobs or not jobs[job].unended]:
            end, allocations, wanted = self._running.pop(job)
            self._give(allocations, now, end, 1)
            self._stocks.give(wanted, now, end, 1)

    def _give(self, allocations: Iterable[Allocation], start: float, end: float, sign: int) -> None:
        for allocation in allocations:
            row = self._state.nodes.by_name[allocation.node].row
            self._lines[row].give(start, end, allocation, sign)

    def _pull_forward(self, order: Mapping[int, int | None], now: float) -> None:
        for job, most in order.items():
            promise = self.promises.get(job)
            if promise is None and job not in self.refused:
                self._promise(self._state.jobs[job], most, now)
            elif promise is not None and promise.start > now:
                self._withdraw(job)
                self._promise(self._state.jobs[job], most, now)

    def _withdraw(self, job: int) -> None:
        promise = self.promises.pop(job)
        self._expect(promise, -1)
        self._give(promise.place.allocations, promise.start, promise.end, 1)
        self._stocks.give(promise.licences, promise.start, promise.end, 1)

    def _expect(self, promise: Promise, sign: int) -> None:
        by_name = self._state.nodes.by_name
        rows = (by_name[allocation.node].row for allocation in promise.place.allocations)
        self._expected.add(promise.part, rows, sign)

    def _promise(self, job: Job, most: int | None, now: float) -> None:
        shape = self._placer.shape(job.ask)
        if shape is None:
            return
        found = self._earliest(shape, job, now) if most is None else None
        fewer = self._in_part(shape, job, most, now)
        in_part = fewer is not None and (found is None or fewer[0] < found[0])
        found = fewer if in_part else found
        if found is not None:
            start, place = found
            end = start + self._lasts(job)
            promise = Promise(start, end, place, shape.part, in_part, job.ask.licences)
            self.promises[job.id] = promise
            self._expect(promise, 1)
            self._give(place.allocations, start, end, -1)
            self._stocks.give(job.ask.licences, start, end, -1)

    def _in_part(self, shape: Shape, job: Job, most: int | None, now: float) -> tuple[float, Place] | None:
        """The first start on fewer nodes of a gang that has waited long enough: on all there are then."""
        least = job.ask.least
        if least is None or self._placer.demanded(shape) is not None:
            return None
        found = self._earliest(replace(shape, nodes=least), job, max(now, ripe_from(job)))
        if found is None or most == least:
            return found
        start = found[0]
        starts = self._starts(self._suited(shape.part), shape.part, job, start)
        ready = sum(first[0] == start for first, _ in starts)
        nodes = min(ready, shape.nodes if most is None else most)
        return self._earliest(replace(shape, nodes=nodes), job, start)

    def _suited(self, part: Part) -> list[Timeline]:
        """The nodes that may be promised to the part. As for its company, that of now counts."""
        may, suited = self._placer.possible(part), self._expected.suited(part, self._state.nodes)
        return [self._lines[row] for row in np.flatnonzero(may if suited is None else may & suited)]

    def _starts(
        self, lines: list[Timeline], part: Part, job: Job, moment: float
    ) -> list[tuple[tuple[float, Room], Timeline]]:
        """The first start on each of these nodes from then on."""
        columns, duration = self._state.nodes.columns, self._lasts(job)
        against = self._state.reservations.against(job.user, job.spec.project)
        needs = needs_of(part, columns)
        if against:
            return [
                (found, line)
                for line in lines
                if (found := self._between(line, part, needs, job, moment, against))
            ]
        return [(found, line) for line in lines if (found := line.first_start(part, needs, duration, moment))]

    def _earliest(self, shape: Shape, job: Job, now: float) -> tuple[float, Place] | None:
        """The first moment from then on at which enough nodes can take the part together."""
        part, domains, moment = shape.part, self._placer.demanded(shape), now
        lines = self._suited(part)
        while True:
            lent = self._stocks.first(job.ask.licences, self._lasts(job), moment)
            if lent is None:
                return None
            starts = self._starts(lines, part, job, lent)
            if len(starts) < shape.nodes:
                return None
            starts.sort(key=lambda each: each[0][0])
            moment = starts[shape.nodes - 1][0][0]
            if self._stocks.first(job.ask.licences, self._lasts(job), moment) != moment:
                continue
            ready = [(found, line) for found, line in starts if found[0] == moment]
            if domains is not None and len(ready) >= shape.nodes:
                rooms = {line.node.row: (found, line) for found, line in ready}
                rows = domains.choose(np.array(sorted(rooms), dtype=np.intp), None, shape.nodes)
                if not rows:
                    later = [found[0] for found, _ in starts if found[0] > moment]
                    if not later:
                        return None
                    moment = min(later)
                    continue
                ready = [rooms[row] for row in rows]
            if len(ready) >= shape.nodes:
                chosen = [
                    self._placer.allocate(part, line.node, found[1]) for found, line in ready[: shape.nodes]
                ]
                allocations = tuple(allocation for allocation, _ in chosen)
                return moment, Place(allocations, quality_of([choice for _, choice in chosen]))

    def _between(
        self,
        line: Timeline,
        part: Part,
        needs: Needs,
        job: Job,
        since: float,
        against: list[Reservation],
    ) -> tuple[float, Room] | None:
        """The first start on one node between the reservations in which the job may not run there."""
        here = self._state.reservations.on_row(self._state.nodes, line.node.row, against)
        found = line.first_start(part, needs, self._lasts(job), since)
        while found is not None:
            clear = clear_from(here, found[0], job.span)
            if clear == found[0]:
                return found
            if clear == NEVER:
                return None
            found = line.first_start(part, needs, self._lasts(job), clear)
        return None

    def refuse(self, job: int, now: float) -> None:
        """What was due may not start after all: others may have its room."""
        end, allocations, wanted = self._running.pop(job)
        self._give(allocations, now, end, 1)
        self._stocks.give(wanted, now, end, 1)
        self.refused.add(job)
        self._gains = -1
