"""Times for which nodes are kept: what must not run where, and until when."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from controller.core.columns import Bools
from controller.core.jobs import NEVER
from controller.core.nodes import Nodes
from wire.reservation import ReservationSpec

AHEAD = 8
"""Occurrences of a recurring reservation that are looked at for a promise."""


@dataclass(slots=True)
class Reservation:
    """One reservation on the nodes it was given. `began` while its time is on."""

    spec: ReservationSpec
    nodes: tuple[str, ...]
    starts_at: float
    """When it begins next, or began."""
    by: str
    began: bool = False

    @property
    def ends_at(self) -> float:
        """When it is over, this time."""
        return self.starts_at + self.spec.duration_s

    @property
    def turns_at(self) -> float:
        """When it begins or ends next."""
        return self.ends_at if self.began else self.starts_at

    def admits(self, user: str, project: str) -> bool:
        """May jobs of these run in it?"""
        return user in self.spec.users or project in self.spec.projects

    def ends(self, now: float) -> Iterator[float]:
        """Its next few ends from now on."""
        end, every = self.ends_at, self.spec.every_s
        if every is None:
            yield end
            return
        end += every * max(0, math.ceil((now - end) / every))
        yield from (end + every * turn for turn in range(AHEAD))

    def meets(self, at: float, until: float) -> bool:
        """Is its time on somewhere between these moments?"""
        return self.clear_from(at, until - at) > at

    def again_at(self, now: float) -> float | None:
        """When it comes again, once it is over."""
        every = self.spec.every_s
        if every is None:
            return None
        return self.starts_at + every * max(1, math.ceil((now - self.ends_at) / every))

    def clear_from(self, at: float, length: float) -> float:
        """The first moment from `at` on after which so much time passes before it is on; NEVER if none."""
        every, duration = self.spec.every_s, self.spec.duration_s
        if at == NEVER:
            return at  # nobody knows what is on when something without a limit ends
        if every is None:
            if at >= self.ends_at or at + length <= self.starts_at:
                return at
            return self.ends_at
        turn = max(0, math.floor((at - self.starts_at) / every))
        begin = self.starts_at + turn * every
        following = begin if at < begin else begin + every
        free = at if at < begin or at >= begin + duration else begin + duration
        if free + length <= following:
            return free
        return following + duration if length <= every - duration else NEVER


class Reservations:
    """All that are to come or on. Without any, nobody pays for them."""

    def __init__(self) -> None:
        self.by_name: dict[str, Reservation] = {}
        self.edition = 0
        """Grows whenever one comes, begins, ends or goes."""
        self._rows: dict[str, tuple[int, list[int]]] = {}

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(self.by_name.values())

    @property
    def next_at(self) -> float:
        """When one begins or ends next."""
        return NEVER if not self.by_name else min((each.turns_at for each in self), default=NEVER)

    def put(self, reservation: Reservation) -> None:
        """One more."""
        self.by_name[reservation.spec.name] = reservation
        self._changed(reservation.spec.name)

    def drop(self, name: str) -> None:
        """One less."""
        del self.by_name[name]
        self._changed(name)

    def begin(self, name: str) -> None:
        """Its time is on."""
        self.by_name[name].began = True
        self._changed(name)

    def end(self, name: str, again_at: float | None) -> None:
        """Its time is over; it comes again then, or goes."""
        if again_at is None:
            self.drop(name)
        else:
            each = self.by_name[name]
            each.began, each.starts_at = False, again_at
            self._changed(name)

    def _changed(self, name: str) -> None:
        self._rows.pop(name, None)
        self.edition += 1

    def against(self, user: str, project: str) -> list[Reservation]:
        """Those in which jobs of these may not run."""
        return [each for each in self if not each.admits(user, project)]

    def barred(self, nodes: Nodes, user: str, project: str, at: float, length: float) -> Bools | None:
        """True for every node on which such a job would get into somebody else's time; None if for none."""
        found: Bools | None = None
        for each in self:
            if not each.admits(user, project) and each.meets(at, at + length):
                if found is None:
                    found = np.zeros(len(nodes.rows), dtype=np.bool_)
                found[self.rows(nodes, each)] = True
        return found

    def rows(self, nodes: Nodes, reservation: Reservation) -> list[int]:
        """The rows of its nodes."""
        name = reservation.spec.name
        known = self._rows.get(name)
        if known is None or known[0] != nodes.layout:
            rows = [
                nodes.by_name[node].row for node in reservation.nodes if node in nodes.by_name and nodes.rows
            ]
            known = self._rows[name] = nodes.layout, rows
        return known[1]

    def on_row(self, nodes: Nodes, row: int, against: Iterable[Reservation]) -> list[Reservation]:
        """Those of them that keep this node."""
        return [each for each in against if row in self.rows(nodes, each)]


def clear_from(reservations: Iterable[Reservation], at: float, length: float) -> float:
    """The first moment from which so much time is free of all of these."""
    each = list(reservations)
    moment = at
    for _ in range(64 + 2 * len(each)):
        latest = max((one.clear_from(moment, length) for one in each), default=moment)
        if latest in (moment, NEVER):
            return latest
        moment = latest
    return NEVER
