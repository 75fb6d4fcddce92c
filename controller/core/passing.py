"""Passing the first waiting job: one class at a time, without breaking what was promised to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from controller.core.events import JobPlaced
from controller.core.plugin import Backfill
from controller.core.queue import Entry, Lane
from controller.core.shadow import find_beside
from wire.words import Reason

if TYPE_CHECKING:
    from controller.core.cycle import Cycle


class Walk:
    """Goes through the waiting jobs of one class, and starts those that may pass."""

    __slots__ = (
        "_cycle",
        "_entries",
        "_entry",
        "_gains",
        "_lane",
        "_long",
        "_longest",
        "_looked",
        "_now",
        "_shape",
        "_too_long",
    )

    def __init__(
        self, cycle: Cycle, lane: Lane, entries: Iterable[Entry], now: float, looked: int = -1
    ) -> None:
        self._cycle = cycle
        self._lane = lane
        self._now = now
        self._gains = cycle.state.nodes.gains
        self._shape = cycle.placer.shape(lane.ask)
        self._entry: Entry = ((), 0)
        self._looked = looked
        """`Nodes.changes` when it was last seen that one of this class may fit."""
        self._long = False
        self._too_long = False
        self._longest: float | None = None
        """Whoever runs so long is in the way of a promise of another profile."""
        if cycle.mode is Backfill.EASY_SJBF:
            entries = sorted(entries, key=self._by_limit)
        self._entries: Iterator[Entry] = iter(entries)

    def _by_limit(self, entry: Entry) -> tuple[float, Entry]:
        return self._cycle.lasts(self._cycle.state.jobs[entry[1]]), entry

    def _blocked(self) -> bool:
        """Nothing of this class fits now, whoever it is."""
        if self._lane.hope.blocked_at == self._gains or self._shape is None:
            return True
        cycle, shape, nodes = self._cycle, self._shape, self._cycle.state.nodes
        if self._looked == nodes.changes:
            return False
        self._looked = nodes.changes
        if not nodes.most.may_hold(shape.part) or cycle.placer.at_most(shape.part) < shape.nodes:
            self._lane.hope.block(self._gains)
            return True
        return False

    def advance(self) -> tuple[float, Entry] | None:
        """Go to the next job worth a try; its place among those of all classes, or None at the end."""
        if self._blocked():
            return None
        cycle, jobs = self._cycle, self._cycle.state.jobs
        until = None
        first = 0 if cycle.head is None else cycle.head[1]
        for entry in self._entries:
            if entry[1] == first:
                continue
            if until is None:
                cycle.needed = True
                until = cycle.until(cycle.shadow(self._now))
            lasts = cycle.lasts(jobs[entry[1]])
            if self._longest is not None and lasts >= self._longest:
                continue
            self._long = self._now + lasts > until  # as ends are counted: a difference is not so exact
            if not (self._long and self._too_long):
                self._entry = entry
                return self.key()
        return None

    def key(self) -> tuple[float, Entry]:
        """The current job's place among those of all walks."""
        shortest = self._cycle.mode is Backfill.EASY_SJBF
        lasts = self._cycle.lasts(self._cycle.state.jobs[self._entry[1]]) if shortest else 0.0
        return lasts, self._cycle.place(self._entry)

    def _over(self) -> bool:
        """May the current job not start whatever room there is? As a rule, then nobody of the lane may."""
        cycle, job = self._cycle, self._entry[1]
        over = cycle.over(self._lane, job, self._now)
        # What is borrowed is given back to those whose it is: they are waiting.
        if over is None:
            if not cycle.allowance.borrows(cycle.state.jobs[job], self._now):
                return False
            cycle.queue.shut[self._lane] = Reason.QUOTA
        if over is None or not over.alone:
            self._entries = iter(())
        return True

    def place(self) -> JobPlaced | None:
        """Start the current job, unless it finds no place or would break the promise."""
        cycle, shape = self._cycle, self._shape
        promise = cycle.shadow(self._now)
        if not cycle.allowance.silent and self._over():
            return None
        wanted = self._lane.ask.licences
        if promise is None or not self._long or cycle.state.licences.short(wanted):
            place = cycle.find(self._lane, self._entry[1], self._now, guarded=cycle.guards)
            if place is None and cycle.common is not None and not (cycle.guards or cycle.state.reservations):
                self._longest = cycle.lasts(cycle.state.jobs[self._entry[1]])
        elif shape is None or not promise.lends(wanted):
            place, self._too_long = None, True
        else:
            barred = cycle.barred(self._entry[1], self._now)
            place = find_beside(cycle.placer, shape, promise, barred)
            if place is None:
                self._too_long = barred is None
                if barred is not None and cycle.placer.fits(self._lane.ask):
                    cycle.keep_out(self._entry[1], self._now)
            else:
                promise.take(cycle.placer, shape.part, place)
                promise.lend(wanted)
        return None if place is None else cycle.placed(self._entry[1], place, self._now)
