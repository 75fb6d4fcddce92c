"""What runs, and what is promised, on every node over time. Profiles that share nodes write in one book."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from controller.core.bits import Bits
from controller.core.columns import Bools
from controller.core.events import Allocation
from controller.core.expected import Expected
from controller.core.jobs import NEVER, Job
from controller.core.licences import holds
from controller.core.lines import Lines
from controller.core.needs import needs_of
from controller.core.placement import Place
from controller.core.requests import Part, Wanted
from controller.core.room import Room, room_of
from controller.core.singles import Singles
from controller.core.skyline import Skyline
from controller.core.state import State
from controller.core.stocks import Stocks

if TYPE_CHECKING:
    from controller.core.plan import Plan

OVERDUE_S = 60.0
"""A running job past its limit is expected to be gone after this: ending takes its grace."""


@dataclass(frozen=True, slots=True)
class Promise:
    """When and where a waiting job starts at the latest."""

    start: float
    end: float
    rows: Bits
    place: Place
    part: Part
    in_part: bool = False
    licences: Wanted = ()
    most: int | None = None
    """The most nodes it may have; None: all it asks for."""
    rooms: Mapping[int, Room] = field(default_factory=dict, compare=False)
    """By row what there was to choose its GPUs from."""


@dataclass(frozen=True, slots=True)
class Running:
    """An attempt as it was written down."""

    attempt: int
    end: float
    allocations: Mapping[str, Allocation]
    """By node."""
    licences: Wanted
    kept: bool = False
    """It has not begun: this is kept for it until others have left."""


class Book:
    """Timelines of all nodes, kept in step with the state; the promises on them belong to the plans.

    Where several plans write in it, what one has promised stands for all: they keep it while they look for
    room of their own, and it is written anew when everything is.
    """

    def __init__(self, state: State) -> None:
        self.lines = Lines({}, Singles(0.0, []), Skyline(0.0, {}))
        self.stocks = Stocks(0.0, {})
        self.expected = Expected()
        self.plans: list[Plan] = []
        self.edition = 0
        """Grows when a promise goes or moves: others may be better off."""
        self._state = state
        self._running: dict[int, Running] = {}
        self._pins: Counter[int] = Counter()
        """Promises by row."""
        self._unread: list[int] = []
        """Rows that another had not looked at yet, from whom this goes on."""
        self._now = 0.0
        self._gains = -1
        self._changes = 0
        self._turns = (-1, -1, -1)

    @property
    def common(self) -> bool:
        """Do several write in it?"""
        return len(self.plans) > 1

    def refresh(self, now: float) -> None:
        """Bring it up to the state at this moment."""
        if self._overdue(now):
            self.void()
        self.sync(now)
        self.lines.forget(now)
        self.stocks.forget(now)

    def sync(self, now: float) -> None:
        """Bring it up to the state."""
        if self._torn() or not self._catch_up(now):
            self._begin(now)

    def resume(self, other: Book) -> bool:
        """Go on from another on the same nodes. False if that is void: then this stays as it is."""
        nodes, theirs = self._state.nodes, other._state.nodes
        if other._torn():
            return False
        unread = theirs.changed_since(other._changes)
        if unread is None:
            return False
        self.lines = other.lines.twin(nodes)
        self.stocks, self.expected = other.stocks.twin(), other.expected.twin()
        self._running = dict(other._running)
        self._pins, self.edition, self._now = Counter(other._pins), other.edition, other._now
        self._turns = nodes.layout, nodes.turns, self._state.reservations.edition
        self._gains = nodes.gains if other._gains == theirs.gains else -1
        self._changes, self._unread = nodes.changes, [*other._unread, *unread]
        return True

    def turn_to(self, now: float) -> None:
        """A pass begins. What was promised for a moment that is over has not come: all are promised anew."""
        self._now = now
        if any(promise.start < now for plan in self.plans for promise in plan.promises.values()):
            self.void()
            self.sync(now)

    @property
    def next_at(self) -> float:
        """The next moment after this pass for which something is promised."""
        starts = (promise.start for plan in self.plans for promise in plan.promises.values())
        return min((start for start in starts if start > self._now), default=NEVER)

    def note_moved(self) -> None:
        """A promise has gone or moved; who is alone knows that."""
        self.edition += self.common

    def void(self) -> None:
        """Everything is to be worked out anew, next time."""
        self._turns = (-1, -1, -1)

    def put(self, promise: Promise) -> None:
        """Write a promise down."""
        self._note(promise, -1)
        self.lines.write(promise, -1)

    def take(self, promise: Promise) -> None:
        """Strike it out."""
        if not self._torn():
            self._note(promise, 1)
            self.lines.write(promise, 1)

    def lift(self, promise: Promise) -> None:
        """Look for something better, as if it were not written: until it is laid back or dropped."""
        self._note(promise, 1)
        self.lines.lift(promise)

    def drop(self) -> None:
        """There is: the one that was lifted goes."""
        self.lines.drop()

    def lay_back(self, promise: Promise) -> None:
        """There is nothing better."""
        self._note(promise, -1)
        self.lines.lay_back()

    def _note(self, promise: Promise, sign: int) -> None:
        """What is written of a promise beside the room of its nodes: struck out (1) or not (-1)."""
        self._expect(promise, -sign)
        self.stocks.give(promise.licences, promise.start, promise.end, sign)
        self._pin(promise, -sign)

    def _pin(self, promise: Promise, more: int) -> None:
        if self.common:
            for row in self._rows(promise):
                self._pins[row] += more
                if not self._pins[row]:
                    del self._pins[row]

    def keep(self, job: Job, promise: Promise) -> None:
        """The promised moment has come: the job runs next, where it was promised to."""
        self._expect(promise, -1)
        there = {each.node: each for each in promise.place.allocations}
        self._running[job.id] = Running(job.attempt + 1, promise.end, there, promise.licences)
        self._pin(promise, -1)

    def unkeep(self, job: int, now: float) -> None:
        """It does not run after all: others may have its room."""
        over = self._running.pop(job)
        self.lines.give(over.allocations.values(), now, over.end, 1)
        self.stocks.give(over.licences, now, over.end, 1)

    def _expect(self, promise: Promise, sign: int) -> None:
        if promise.part.social:
            self.expected.add(promise.part, self._rows(promise), sign)

    def barred(self, part: Part, length: float, now: float) -> Bools | None:
        """Nodes where the part, started now and there for so long, would be in the way of a promise."""
        if not self._pins:
            return None
        rooms, columns = self.rooms(self._pins, length, now), self._state.nodes.columns
        needs, barred = needs_of(part, columns), np.zeros(columns.height, dtype=np.bool_)
        for row, room in rooms.items():
            barred[row] = not room.holds(part, needs, row)
        return barred

    def lends(self, wanted: Wanted, length: float, now: float) -> bool:
        """Are there licences enough from now on for so long, beside those that are promised?"""
        if not wanted:
            return True
        self.sync(now)
        return self.stocks.first(wanted, length, now) == now

    def rooms(self, rows: Iterable[int], length: float, now: float) -> dict[int, Room]:
        """By row what can be taken now for so long, beside what is promised there."""
        self.sync(now)
        nodes = self._state.nodes
        return {
            row: self.lines.least(row, now, length).least(room_of(nodes, row))
            for row in rows
            if row in self._pins
        }

    def pinned(self, until: float) -> Bools | None:
        """Nodes on which something is promised to start before then."""
        found = [
            row
            for plan in self.plans
            for promise in plan.promises.values()
            if promise.start < until
            for row in self._rows(promise)
        ]
        if not found:
            return None
        pinned = np.zeros(self._state.nodes.columns.height, dtype=np.bool_)
        pinned[found] = True
        return pinned

    def promised(self, row: int) -> list[tuple[float, int]]:
        """The starts promised on a node, soonest first, and to whom."""
        return sorted(
            (promise.start, job)
            for plan in self.plans
            for job, promise in plan.promises.items()
            if row in self._rows(promise)
        )

    def _rows(self, promise: Promise) -> list[int]:
        by_name = self._state.nodes.by_name
        return [by_name[each.node].row for each in promise.place.allocations if each.node in by_name]

    def _torn(self) -> bool:
        """Have nodes come, gone or changed, or has what is kept for whom?"""
        nodes = self._state.nodes
        height = nodes.columns.height  # laid out first: that may raise the layout
        turns = nodes.layout, nodes.turns, self._state.reservations.edition
        return self._turns != turns or len(self.lines) != height

    def _begin(self, now: float) -> None:
        """Start over from what runs: nodes came or changed, or a job outstays its limit."""
        state, nodes = self._state, self._state.nodes
        self.lines = Lines.of(nodes, now)
        self._turns = nodes.layout, nodes.turns, state.reservations.edition
        self._gains, self._changes = nodes.gains, nodes.changes
        self._unread.clear()
        licences = state.licences
        self.stocks = Stocks(now, {name: licences.free(name) for name in licences.total})
        self.expected = Expected()
        self._running.clear()
        for end, number in state.releases:
            job, end = state.jobs[number], end if end > now else now + OVERDUE_S
            there, kept = {each.node: each for each in state.returns(job)}, not job.unended
            running = Running(job.attempt, end, there, job.ask.licences, kept)
            self._running[number] = running
            self.lines.give(running.allocations.values(), end, NEVER, 1)
            self.stocks.give(running.licences, end, NEVER, 1)
        self._promise_anew(now)

    def _promise_anew(self, now: float) -> None:
        """Among several the sooner start comes first; a plan alone has an order of its own."""
        old = [
            (promise.start, job, promise.most, plan)
            for plan in self.plans
            for job, promise in plan.promises.items()
        ]
        self._pins.clear()
        for plan in self.plans:
            plan.promises.clear()
            plan.refused.clear()
        if self.common:
            self.edition += 1
            for _, job, most, plan in sorted(old, key=lambda each: each[:2]):
                if job in self._state.queue:
                    plan.promise(self._state.jobs[job], most, now)

    def _overdue(self, now: float) -> bool:
        jobs = self._state.jobs
        return any(
            each.end <= now and job in jobs and holds(jobs[job]) for job, each in self._running.items()
        )

    def _catch_up(self, now: float) -> bool:
        """Write down what has started and what has ended since; False if it is more than that."""
        nodes, jobs = self._state.nodes, self._state.jobs
        if self._gains != nodes.gains:  # some ended before their time
            ran = [job for job, each in self._running.items() if not each.kept]
            for job in [job for job in ran if job not in jobs or not jobs[job].unended]:
                over = self._running.pop(job)
                self.lines.give(over.allocations.values(), now, over.end, 1)
                self.stocks.give(over.licences, now, over.end, 1)
            self._gains = nodes.gains
        rows = nodes.changed_since(self._changes)
        if rows is None:
            return False
        for node in [nodes.rows[row] for row in sorted({*rows, *self._unread})]:
            for job in node.held:
                known = self._running.get(job)
                if known is None:
                    end, there = (
                        jobs[job].expected_end,
                        {each.node: each for each in self._state.returns(jobs[job])},
                    )
                    wanted = jobs[job].ask.licences
                    self._running[job] = Running(jobs[job].attempt, end, there, wanted)
                    self.lines.give(there.values(), now, end, -1)
                    self.stocks.give(wanted, now, end, -1)
                elif known.attempt != jobs[job].attempt:
                    return False
                elif node.name not in known.allocations:  # it has grown
                    there = {**known.allocations, node.name: node.held[job]}
                    self._running[job] = replace(known, allocations=there)
                    self.lines.give((node.held[job],), now, known.end, -1)
        self._changes = nodes.changes
        self._unread.clear()
        return True
