"""Advance reservations of nodes. A reservation keeps other jobs off its nodes during its time. Jobs that name
the reservation (`--reservation`) run only on its nodes.

`Reservations.version` increases when a reservation is added, begins, ends or is removed, and with each change
of a timed drain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node import Node
from controller.core.cluster.node_table import Bools
from controller.core.cluster.nodes import Nodes
from controller.core.model.job import NEVER
from wire.cluster.reservation import LONGEST_S, ReservationSpec
from wire.job.spec import JobSpec
from wire.names import Reason
from wire.text import duration, printable

DRAIN_PREFIX = "drain/"
"""The prefix of the names of timed drains in the list of reservations, such as drain/gpu01. Names of
operators' reservations have no slash.
"""
AHEAD = 8
"""The ends of at most this many occurrences of a recurring reservation are tried as planned starts of jobs.
"""


@dataclass(slots=True)
class Reservation:
    """A reservation of nodes, made by an operator or for a timed drain (`drain`). `began` is True while the
    reservation is active. A recurring reservation is active once in each period; each of these times is an
    occurrence.
    """

    spec: ReservationSpec
    nodes: tuple[str, ...]
    starts_at: float
    """The start of the active occurrence. If no occurrence is active, the start of the next occurrence."""
    by: str
    began: bool = False
    drain: bool = False
    """True for the reservation of a timed drain, False for a reservation of an operator."""

    @property
    def title(self) -> str:
        """Return a phrase that names the reservation in a sentence, such as `reservation 'fans'` or `the
        drain of node gpu01`.
        """
        if self.drain:
            return f"the drain of node {self.nodes[0]}"
        return f"reservation {printable(self.spec.name)!r}"

    @property
    def ends_at(self) -> float:
        """The end of the active occurrence; if none is active, the end of the next occurrence."""
        return self.starts_at + self.spec.duration_s

    @property
    def next_change(self) -> float:
        """The time at which the reservation begins or ends next."""
        return self.ends_at if self.began else self.starts_at

    def admits(self, user: str, project: str) -> bool:
        """Return whether jobs of this user in this project may use the reserved nodes."""
        return user in self.spec.users or project in self.spec.projects

    def ends(self, now: float) -> Iterator[float]:
        """Yield the end of the active or next occurrence, and then the ends of later occurrences. Yield at
        most AHEAD ends.
        """
        end, every = self.ends_at, self.spec.every_s
        if every is None:
            yield end
            return
        end += every * max(0, math.ceil((now - end) / every))
        yield from (end + every * turn for turn in range(AHEAD))

    def overlaps(self, at: float, until: float) -> bool:
        """Return whether an occurrence of the reservation lies at least in part between `at` and `until`."""
        return self.clear_from(at, until - at) > at

    def next_start(self, now: float) -> float | None:
        """Return the start of the next occurrence after the one that begins at `starts_at`. Skip occurrences
        that have ended by `now`. Return None if the reservation does not recur.
        """
        every = self.spec.every_s
        if every is None:
            return None
        return self.starts_at + every * max(1, math.ceil((now - self.ends_at) / every))

    def clear_from(self, at: float, length: float) -> float:
        """Return the first time, at or after `at`, when a job of `length` seconds can start without
        overlapping an occurrence. Return NEVER if there is no such time.

        Steps for a recurring reservation:
        1. Find the occurrence at or before `at`. If this occurrence is still active at `at`, continue at its
           end.
        2. If the next occurrence begins in less than `length` seconds, continue at its end. If `length` is
           longer than the gap between two occurrences, return NEVER, because all gaps are equally long.
        """
        every, duration = self.spec.every_s, self.spec.duration_s
        if at == NEVER:
            # NEVER means that the start of the job is unknown, for example because it waits for the end of a
            # job without a time limit.
            return at
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


@dataclass(frozen=True, slots=True)
class ReservationClosed:
    """The reason why a job with `--reservation` may not start: the reservation does not exist, is not active,
    or does not admit the job.
    """

    sentence: str
    reason: ClassVar[Reason] = Reason.RESERVATION
    only_this_job: ClassVar[bool] = False
    """False, because the reason applies to all jobs of the lane: they have the same user, project and
    reservation.
    """

    def __str__(self) -> str:
        return self.sentence


class Reservations:
    """All active and future reservations of operators, and the timed drains.

    A timed drain is kept like a maintenance reservation without an end that begins at
    `Node.timed_drain.empty_by`, the time at which the node must be empty. So all code that plans starts
    around reservations also plans around timed drains. `by_name` contains only the operators' reservations.
    Iteration also yields the timed drains.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, Reservation] = {}
        self.drains: dict[str, Reservation] = {}
        """The reservation of each timed drain whose time has not come yet, by node."""
        self.version = 0
        """A version number that increases with every change of a reservation or timed drain."""
        self._rows: dict[str, tuple[int, list[int]]] = {}

    def __bool__(self) -> bool:
        return bool(self.by_name or self.drains)

    def __iter__(self) -> Iterator[Reservation]:
        yield from self.by_name.values()
        yield from self.drains.values()

    def follow_drain(self, node: Node) -> None:
        """Add, change or remove the reservation of the timed drain of a node, so that it agrees with
        `Node.timed_drain`.
        """
        name, drain = f"{DRAIN_PREFIX}{node.name}", node.timed_drain
        if drain is not None:
            spec = ReservationSpec(name, drain.empty_by, LONGEST_S, (node.name,), why=drain.why)
            self.drains[node.name] = Reservation(spec, (node.name,), drain.empty_by, drain.by, drain=True)
        elif self.drains.pop(node.name, None) is None:
            return
        self._changed(name)

    @property
    def next_at(self) -> float:
        """The next time at which an operator's reservation begins or ends; NEVER if there is none."""
        return min((each.next_change for each in self.by_name.values()), default=NEVER)

    def add(self, reservation: Reservation) -> None:
        """Add a reservation, or replace the reservation with the same name."""
        self.by_name[reservation.spec.name] = reservation
        self._changed(reservation.spec.name)

    def remove(self, name: str) -> None:
        """Remove a reservation. Raise KeyError if there is none with this name."""
        del self.by_name[name]
        self._changed(name)

    def begin(self, name: str) -> None:
        """Mark a reservation as active, because its start time has come."""
        self.by_name[name].began = True
        self._changed(name)

    def end(self, name: str, again_at: float | None) -> None:
        """End the active occurrence of a reservation. `again_at` is the start of its next occurrence; None
        removes the reservation.
        """
        if again_at is None:
            self.remove(name)
        else:
            each = self.by_name[name]
            each.began, each.starts_at = False, again_at
            self._changed(name)

    def _changed(self, name: str) -> None:
        self._rows.pop(name, None)
        self.version += 1

    def excluding(self, user: str, project: str) -> list[Reservation]:
        """Return the reservations and timed drains whose nodes a job of this user and project must
        not use.
        """
        if not self:
            return []
        return [each for each in self if not each.admits(user, project)]

    def barred_rows(self, nodes: Nodes, user: str, project: str, at: float, length: float) -> Bools | None:
        """Return which nodes (True by row number) a job of this user and project must not use between `at`
        and `at` plus `length` seconds, because they are reserved for other users at some time in between.
        Return None if it may use all nodes.
        """
        found: Bools | None = None
        for each in self:
            if not each.admits(user, project) and each.overlaps(at, at + length):
                if found is None:
                    found = np.zeros(len(nodes.rows), dtype=np.bool_)
                found[self.rows(nodes, each)] = True
        return found

    def named_by(self, spec: JobSpec, user: str) -> Reservation | None:
        """Return the reservation that the job names. Return None if the job names none, or if the reservation
        does not exist or does not admit the job.
        """
        named = self.by_name.get(spec.reservation)
        return named if named is not None and named.admits(user, spec.project) else None

    def closed(self, spec: JobSpec, user: str, now: float) -> ReservationClosed | None:
        """Return why the job may not start in the reservation that it names. Return None if the job names no
        reservation, or if its reservation is active and admits the job.
        """
        if not spec.reservation:
            return None
        named = self.by_name.get(spec.reservation)
        if named is None:
            shown = printable(spec.reservation)
            return ReservationClosed(f"reservation {shown!r} no longer exists: it has ended or was cancelled")
        if not named.admits(user, spec.project):
            neither = f"neither user {printable(user)!r} nor project {printable(spec.project)!r}"
            return ReservationClosed(f"{named.title} admits {neither}")
        if not named.began:
            return ReservationClosed(f"{named.title} begins in {duration(max(0.0, named.starts_at - now))}")
        return None

    def rows_outside(self, nodes: Nodes, spec: JobSpec, user: str) -> Bools | None:
        """Return which nodes (True by row number) are not in the reservation that the job names. If the
        reservation is not active or does not admit the job, all nodes are True. Return None if the job names
        no reservation.
        """
        if not spec.reservation:
            return None
        outside, named = np.ones(len(nodes.rows), dtype=np.bool_), self.named_by(spec, user)
        if named is not None and named.began:
            outside[self.rows(nodes, named)] = False
        return outside

    def rows(self, nodes: Nodes, reservation: Reservation) -> list[int]:
        """Return the row numbers of the nodes of the reservation. The result is cached until the reservation
        changes, or until nodes are added, removed or changed.
        """
        name = reservation.spec.name
        known = self._rows.get(name)
        if known is None or known[0] != nodes.layout_version:
            rows = [
                nodes.by_name[node].row for node in reservation.nodes if node in nodes.by_name and nodes.rows
            ]
            known = self._rows[name] = nodes.layout_version, rows
        return known[1]

    def on_row(self, nodes: Nodes, row: int, candidates: Iterable[Reservation]) -> list[Reservation]:
        """Return the reservations in `candidates` that reserve the node with this row number."""
        return [each for each in candidates if row in self.rows(nodes, each)]


def clear_from(reservations: Iterable[Reservation], at: float, length: float) -> float:
    """Return the first time, at or after `at`, when a job of `length` seconds can start without overlapping
    any of these reservations. Return NEVER if there is no such time.
    """
    each = list(reservations)
    moment = at
    for _ in range(64 + 2 * len(each)):
        latest = max((one.clear_from(moment, length) for one in each), default=moment)
        if latest in (moment, NEVER):
            return latest
        moment = latest
    return NEVER
