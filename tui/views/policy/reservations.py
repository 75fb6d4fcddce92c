"""The list of present and future reservations."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from textual.binding import BindingType

from tui import actions
from tui.app_interface import app_of
from tui.data.lists.tenant_lists import reservation_for
from tui.look import cells, glyphs
from tui.look.columns import ListColumn
from tui.look.styled_lines import Piece
from tui.panels.reservations import free_graph, overlap_lines
from tui.plan.timeline import Timeline
from tui.views.polled_list_view import PolledListView
from tui.views.view import bindings
from wire.api.policy.reservations import ReservationList, ReservationView
from wire.http.client import Client
from wire.text import duration, printable

DAY_S: Final = 86_400.0
SCALE: Final = 6
"""The width of the scale to the left of the graph, in terminal cells."""


class ReservationsView(PolledListView[ReservationView, ReservationList]):
    NAME = actions.RESERVATIONS
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.RESERVATIONS)
    CHANGED_BY = frozenset(
        {"ReservationMade", "ReservationBegan", "ReservationEnded", "ReservationCancelled"}
    )

    def columns(self) -> Sequence[ListColumn[ReservationView]]:
        return (
            ListColumn(
                "name", "NAME", 1, 14, lambda row: [(printable(row.spec.name), "text")], 9, grow=2, most=30
            ),
            ListColumn("state", "STATE", 2, 9, lambda row: [_state(row)], 9),
            ListColumn("begins", "BEGINS", 3, 12, self._begins, 12),
            ListColumn("ends", "ENDS", 4, 12, self._ends, 12),
            ListColumn("for", "FOR", 5, 12, lambda row: [_tenants(row)], 11, grow=2, most=40),
            ListColumn("nodes", "NODES", 6, 12, lambda row: [(_nodes(row), "accent")], 8, grow=2, most=50),
            ListColumn("every", "EVERY", 8, 6, lambda row: [(_every(row), "muted")], right=True),
            ListColumn("calendar", "NEXT 24 HOURS", 7, 24, self._calendar),
            ListColumn(
                "why", "WHY", 9, 16, lambda row: [(printable(row.spec.why), "muted")], grow=3, most=60
            ),
            ListColumn("by", "BY", 10, 8, lambda row: [(printable(row.by), "faint")]),
        )

    def _begins(self, row: ReservationView) -> Sequence[Piece]:
        return [(cells.clock(row.starts_at, self._now()), "muted" if row.on else "text")]

    def _ends(self, row: ReservationView) -> Sequence[Piece]:
        return [(cells.clock(row.ends_at, self._now()), "text" if row.on else "muted")]

    def _now(self) -> float:
        return app_of(self).model.now()

    def _calendar(self, row: ReservationView) -> Sequence[Piece]:
        """Return one symbol for each of the next 24 hours: a thick line if the reservation is active in this
        hour, otherwise a thin line.
        """
        pieces: list[Piece] = []
        for hour in range(24):
            begin = self._now() + hour * 3_600
            active = _active_between(row, begin, begin + 3_600)
            pieces.append(("━", _state(row)[1]) if active else ("─", "track"))
        return pieces

    def question(self, client: Client) -> ReservationList:
        return client.reservations()

    def rows_of(self, answer: ReservationList) -> Sequence[ReservationView]:
        return answer.reservations

    def nothing(self) -> Sequence[Piece]:
        return [("no reservations", "muted"), *self.hint("new_reservation", "makes one")]

    def details(self, row: ReservationView) -> list[list[Piece]]:
        """Return the details of a reservation: times, users, nodes, and the jobs that run on these nodes
        now.
        """
        now, spec = self._now(), row.spec
        when = f"for {duration(row.ends_at - now)} more" if row.on else f"in {duration(row.starts_at - now)}"
        again = f", again every {duration(spec.every_s)}" if spec.every_s else ""
        rows = app_of(self).model.jobs.rows
        there = ", ".join(printable(rows[job].label) if job in rows else str(job) for job in row.jobs)
        return [
            cells.fact(
                "name", (printable(spec.name, 100), "strong"), (f"  by {printable(row.by, 30)}", "muted")
            ),
            cells.fact(
                "time",
                (f"{cells.clock(row.starts_at, now)} to {cells.clock(row.ends_at, now)}", "text"),
                (f"  {when}{again}", "muted"),
            ),
            cells.fact("for", _tenants(row)),
            cells.fact(f"nodes {len(row.nodes)}", (printable(", ".join(row.nodes), 300), "accent")),
            cells.fact("jobs", (there or "none", "text" if there else "faint")),
            *([cells.fact("why", (printable(spec.why, 300), "text"))] if spec.why else []),
        ]

    def more(self, width: int, height: int) -> list[list[Piece]]:
        """Return the jobs that may run into a reservation, and the free GPUs of the next day."""
        rows, model = list(self.listing.rows.values()), app_of(self).model
        overlaps = overlap_lines(rows, model, width, height)
        timeline = Timeline(model.now(), DAY_S, max(1, width - SCALE))
        graph = free_graph(rows, model, timeline, SCALE, height - len(overlaps) - 1)
        times: list[list[Piece]] = [[(" " * SCALE + timeline.line(model.now()), "faint")]] if graph else []
        return [*overlaps, *graph, *times]

    def subjects(self) -> Mapping[str, str]:
        row = self.here
        return {} if row is None else {"reservation": shlex.quote(printable(row.spec.name))}

    def act_calendar(self) -> None:
        app_of(self).open_calendar()

    def act_open(self) -> None:
        row = self.here
        if row is not None and row.nodes:
            app_of(self).open_node(row.nodes[0])


def _state(row: ReservationView) -> Piece:
    return (f"{glyphs.ON} on", "running") if row.on else (f"{glyphs.COMING} to come", "queued")


def _tenants(row: ReservationView) -> Piece:
    return (printable(reservation_for(row)), "warn" if row.spec.maintenance else "text")


def _nodes(row: ReservationView) -> str:
    return (
        printable(",".join(row.nodes))
        if len(row.nodes) < 4
        else f"{printable(row.nodes[0])} +{len(row.nodes) - 1}"
    )


def _every(row: ReservationView) -> str:
    return duration(row.spec.every_s) if row.spec.every_s else "-"


def _active_between(row: ReservationView, begin: float, end: float) -> bool:
    """Return True if the reservation, or one of its repetitions, overlaps the time from `begin` to `end`."""
    begins, ends, every = row.starts_at, row.ends_at, row.spec.every_s
    if every and begin >= ends:
        turns = (begin - ends) // every + 1
        begins, ends = begins + turns * every, ends + turns * every
    return begins < end and begin < ends
