"""The moment the first waiting job can start at the latest, and what must stay free for it then."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

import numpy as np

from controller.core.columns import Bools
from controller.core.placement import Place, Placer, Shape
from controller.core.requests import Ask, Part
from controller.core.room import Room, room_of
from controller.core.state import State


class Shadow:
    """A promise: at `at`, `shape.nodes` nodes have room for the job it was made for.

    Whoever starts now and still runs then must not break it. `spare` counts the nodes with room beyond
    those needed: so many may be spoilt.
    """

    def __init__(self, state: State, shape: Shape, possible: Bools, fitting: set[int], job: int) -> None:
        self.job = job
        self.at = 0.0
        self.spare = 0
        self._state = state
        self._shape = shape
        self._possible = possible
        self._fitting = fitting
        self._codes = frozenset(state.nodes.columns.model_codes(shape.part.models))
        self._rooms: dict[int, Room] = {}

    def advance(self, now: float) -> bool:
        """Go from release to release until the job fits; False if it never does."""
        for end, releases in groupby(self._state.releases, key=itemgetter(0)):
            for _, job in releases:
                self._release(job)
            if len(self._fitting) >= self._shape.nodes:
                self.at = max(end, now)
                self.spare = len(self._fitting) - self._shape.nodes
                return True
        return False

    def _release(self, job: int) -> None:
        for member in self._state.jobs[job].running:
            node = self._state.nodes.by_name[member.allocation.node]
            if self._possible[node.row]:
                room = self._room(node.row)
                room.give(node, member.allocation, 1)
                if node.row not in self._fitting and room.holds(self._shape.part, self._codes):
                    self._fitting.add(node.row)

    def _room(self, row: int) -> Room:
        room = self._rooms.get(row)
        if room is None:
            room = self._rooms[row] = room_of(self._state.nodes, row)
        return room

    def spoils(self, placer: Placer, part: Part, row: int) -> bool:
        """Would this node, now with room for the promised job, have none beside the part?"""
        if row not in self._fitting:
            return False
        room, wanted = self._room(row), self._shape.part
        if (
            room.cpu_milli - part.cpu_milli < wanted.cpu_milli
            or room.memory_mib - part.memory_mib < wanted.memory_mib
        ):
            return True
        if not (wanted.gpus or wanted.share) or not (part.gpus or part.share):
            return False
        node = self._state.nodes.rows[row]
        allocation, _ = placer.allocate(part, node)
        room.give(node, allocation, -1)
        fits = room.holds(wanted, self._codes)
        room.give(node, allocation, 1)
        return not fits

    def take(self, placer: Placer, part: Part, place: Place) -> None:
        """The place is taken past the time of the promise. Call it before the nodes know."""
        for allocation in place.allocations:
            node = self._state.nodes.by_name[allocation.node]
            if self.spoils(placer, part, node.row):
                self._fitting.discard(node.row)
                self.spare -= 1
            if self._possible[node.row]:
                self._room(node.row).give(node, allocation, -1)

    def pass_by(self, place: Place) -> None:
        """The place is taken, and given back in time. Call it before the nodes know."""
        for allocation in place.allocations:
            row = self._state.nodes.by_name[allocation.node].row
            if self._possible[row]:
                self._room(row)  # as it is now, for the columns are about to lose what comes back in time


def cast_shadow(state: State, placer: Placer, ask: Ask, job: int, now: float) -> Shadow | None:
    """The promise for a job that cannot start now; None if no release of a running job ever lets it."""
    shape = placer.shape(ask)
    if shape is None:
        return None
    possible = placer.possible(shape.part)
    fitting = set(np.flatnonzero(placer.ranking(shape.part).fits).tolist())
    shadow = Shadow(state, shape, possible, fitting, job)
    return shadow if shadow.advance(now) else None


def find_beside(placer: Placer, shape: Shape, shadow: Shadow) -> Place | None:
    """The best place for something that outlasts the promise without breaking it."""
    if not placer.nodes.most.may_hold(shape.part):
        return None
    ranking = placer.ranking(shape.part)
    if ranking.count < shape.nodes:
        return None
    chosen: list[int] = []
    rows, spare = ranking.in_order(), shadow.spare
    for seen, row in enumerate(rows):
        if shadow.spoils(placer, shape.part, row):
            if not spare:
                if len(chosen) + len(rows) - seen <= shape.nodes:
                    return None
                continue
            spare -= 1
        chosen.append(row)
        if len(chosen) == shape.nodes:
            return placer.settle(shape, sorted(chosen))
    return None
