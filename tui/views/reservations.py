"""Nodes that are kept, now and in time to come."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.binding import BindingType

from tui import actions, cells, glyphs
from tui.columns import Column
from tui.paint import Piece
from tui.stage import stage
from tui.tenants import reservation_for
from tui.views.asked import Asked
from tui.views.view import bindings
from wire.api.tenants import ReservationList, ReservationView
from wire.client import Client
from wire.text import duration, plain


class Reservations(Asked[ReservationView, ReservationList]):
    """All that are on or to come."""

    NAME = actions.RESERVATIONS
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.RESERVATIONS)
    CHANGED_BY = frozenset(
        {"ReservationMade", "ReservationBegan", "ReservationEnded", "ReservationCancelled"}
    )

    def columns(self) -> Sequence[Column[ReservationView]]:
        """Eighty columns show what one needs to know; more room shows more."""
        return (
            Column("name", "NAME", 1, 14, lambda row: [(plain(row.spec.name), "text")], 9, grow=2, most=30),
            Column("state", "STATE", 2, 9, lambda row: [_state(row)], 9),
            Column("begins", "BEGINS", 3, 12, self._begins, 12),
            Column("ends", "ENDS", 4, 12, self._ends, 12),
            Column("for", "FOR", 5, 12, lambda row: [_whom(row)], 11, grow=2, most=40),
            Column("nodes", "NODES", 6, 12, lambda row: [(_nodes(row), "accent")], 8, grow=2, most=50),
            Column("every", "EVERY", 8, 6, lambda row: [(_every(row), "muted")], right=True),
            Column("calendar", "NEXT 24 HOURS", 7, 24, self._calendar),
            Column("why", "WHY", 9, 16, lambda row: [(plain(row.spec.why), "muted")], grow=3, most=60),
            Column("by", "BY", 10, 8, lambda row: [(plain(row.by), "faint")]),
        )

    def _begins(self, row: ReservationView) -> Sequence[Piece]:
        return [(cells.clock(row.starts_at, self._now()), "muted" if row.on else "text")]

    def _ends(self, row: ReservationView) -> Sequence[Piece]:
        return [(cells.clock(row.ends_at, self._now()), "text" if row.on else "muted")]

    def _now(self) -> float:
        return stage(self).model.now()

    def _calendar(self, row: ReservationView) -> Sequence[Piece]:
        """A cell for every hour from now on, filled where nodes are kept."""
        pieces: list[Piece] = []
        for hour in range(24):
            begin = self._now() + hour * 3_600
            kept = _kept(row, begin, begin + 3_600)
            pieces.append(("━", _state(row)[1]) if kept else ("─", "track"))
        return pieces

    def question(self, client: Client) -> ReservationList:
        """All of them."""
        return client.reservations()

    def rows_of(self, answer: ReservationList) -> Sequence[ReservationView]:
        """The next first."""
        return answer.reservations

    def nothing(self) -> Sequence[Piece]:
        """Every node is everybody's."""
        return [("no reservations", "muted"), *self.hint("new_reservation", "makes one")]

    def told(self, row: ReservationView) -> list[list[Piece]]:
        """When, for whom, where, and who is there now."""
        now, spec = self._now(), row.spec
        when = f"for {duration(row.ends_at - now)} more" if row.on else f"in {duration(row.starts_at - now)}"
        again = f", again every {duration(spec.every_s)}" if spec.every_s else ""
        rows = stage(self).model.jobs.rows
        there = ", ".join(plain(rows[job].label) if job in rows else str(job) for job in row.jobs)
        return [
            cells.fact("name", (plain(spec.name, 100), "strong"), (f"  by {plain(row.by, 30)}", "muted")),
            cells.fact(
                "time",
                (f"{cells.clock(row.starts_at, now)} to {cells.clock(row.ends_at, now)}", "text"),
                (f"  {when}{again}", "muted"),
            ),
            cells.fact("for", _whom(row)),
            cells.fact(f"nodes {len(row.nodes)}", (plain(", ".join(row.nodes), 300), "accent")),
            cells.fact("jobs", (there or "none there", "text" if there else "faint")),
            *([cells.fact("why", (plain(spec.why, 300), "text"))] if spec.why else []),
        ]

    def subjects(self) -> Mapping[str, str]:
        """The reservation under the cursor."""
        row = self.here
        return {} if row is None else {"reservation": shlex.quote(plain(row.spec.name))}

    def act_open(self) -> None:
        """Its first node."""
        row = self.here
        if row is not None and row.nodes:
            stage(self).open_node(row.nodes[0])


def _state(row: ReservationView) -> Piece:
    return (f"{glyphs.ON} on", "running") if row.on else (f"{glyphs.COMING} to come", "queued")


def _whom(row: ReservationView) -> Piece:
    return (plain(reservation_for(row)), "warn" if row.spec.maintenance else "text")


def _nodes(row: ReservationView) -> str:
    return (
        plain(",".join(row.nodes)) if len(row.nodes) < 4 else f"{plain(row.nodes[0])} +{len(row.nodes) - 1}"
    )


def _every(row: ReservationView) -> str:
    return duration(row.spec.every_s) if row.spec.every_s else "-"


def _kept(row: ReservationView, begin: float, end: float) -> bool:
    """Whether any of its times meets this one."""
    begins, ends, every = row.starts_at, row.ends_at, row.spec.every_s
    if every and begin >= ends:
        turns = (begin - ends) // every + 1
        begins, ends = begins + turns * every, ends + turns * every
    return begins < end and begin < ends
