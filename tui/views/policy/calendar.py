"""The calendar of reservations and maintenance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType

from tui import actions
from tui.app_interface import app_of
from tui.data.cluster_feed import Changes
from tui.data.request_workers import Failure
from tui.look import cells
from tui.look.styled_lines import Piece
from tui.views.view import View, bindings
from tui.widgets.calendar_pane import DRAINED, JOB, NO_LIMIT, RESERVED, CalendarPane, filled_form
from wire.api.nodes import NodeView
from wire.api.policy.reservations import ReservationList
from wire.text import counted, duration, printable

REASK_S: Final = 5


class CalendarView(View):
    """Shows the times at which nodes are reserved, and the times until which running jobs may use the nodes.
    The user chooses nodes and a window (the time of a new reservation), and opens the form of a new
    reservation, in which the nodes and the window are filled in.
    """

    NAME = actions.CALENDAR
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.CALENDAR)

    def __init__(self) -> None:
        super().__init__()
        self._pane = CalendarPane()
        self._ticks = 0

    def compose(self) -> ComposeResult:
        yield self._pane

    @property
    def pane(self) -> CalendarPane:
        return self._pane

    def note(self, *, brief: bool = False) -> Sequence[Piece]:
        """Return the meaning of the symbols in the calendar, as text for the line above it. With `brief`,
        return an empty text.
        """
        signs = ((JOB, "running", "job"), (NO_LIMIT, "warn", "no time limit"), (RESERVED, "held", "reserved"))
        pieces: list[Piece] = []
        for sign, style, word in () if brief else (*signs, (DRAINED, "drained", "out of service")):
            pieces += [(f"{sign} ", style), (f"{word}  ", "muted")]
        return pieces

    def status(self) -> Sequence[Piece]:
        """Return the window, the chosen nodes, and the jobs and reservations that may use these nodes within
        the window, as text for the status line.
        """
        pane, now = self._pane, app_of(self).model.now()
        nodes = pane.chosen
        if not nodes:
            return [("no nodes", "muted")]
        jobs, taken = pane.conflicts()
        end = pane.starts_at + pane.length_s
        where = printable(nodes[0], 24) if len(nodes) == 1 else counted(len(nodes), "node")
        when = f"{cells.clock(pane.starts_at, now)} to {cells.clock(end, now)}"
        pieces: list[Piece] = [(f"{when}  ", "strong"), (f"{duration(pane.length_s)} on {where}  ", "text")]
        if taken:
            pieces.append(
                (f"reserved: {', '.join(printable(row.spec.name, 24) for row in taken[:3])}  ", "bad")
            )
        if jobs:
            labels = ", ".join(printable(job.label) for job in jobs[:4])
            pieces.append((f"{counted(len(jobs), 'job')} may still run: {labels}", "warn"))
        return pieces if taken or jobs else [*pieces, ("free", "good")]

    def nodes(self) -> list[NodeView]:
        rows = app_of(self).model.nodes.rows
        return [rows[name] for name in self._pane.chosen if name in rows]

    def changed(self, changes: Changes) -> None:
        if changes.fresh or any(event.kind.startswith("Reservation") for event in changes.events):
            self._ask()
        self._pane.update()

    def tick(self) -> None:
        self._ticks += 1
        if self._ticks % REASK_S == 0:
            self._ask()
        self._pane.update()

    def _ask(self) -> None:
        app = app_of(self)
        if app.model.connection.state != "lost":
            app.requests.ask(lambda client: client.reservations(), self._answered)

    def _answered(self, answer: ReservationList | Failure) -> None:
        if self.is_attached and isinstance(answer, ReservationList):
            self._pane.reservations = answer.reservations
            self._pane.update()
            app_of(self).refresh_lines()

    def act_open(self) -> None:
        if self._pane.nodes:
            app_of(self).open_node(self._pane.nodes[self._pane.at])

    def act_new_reservation(self) -> None:
        """Open the form of a new reservation, with the window and the chosen nodes filled in."""
        app_of(self).reserve(filled_form(self._pane))

    def act_window_later(self) -> None:
        self._pane.move_window(1)
        app_of(self).refresh_lines()

    def act_window_earlier(self) -> None:
        self._pane.move_window(-1)
        app_of(self).refresh_lines()

    def act_window_longer(self) -> None:
        self._pane.resize_window(1)
        app_of(self).refresh_lines()

    def act_window_shorter(self) -> None:
        self._pane.resize_window(-1)
        app_of(self).refresh_lines()

    def act_longer(self) -> None:
        self._pane.zoom(1)

    def act_shorter(self) -> None:
        self._pane.zoom(-1)

    def act_mark_node(self) -> None:
        pane = self._pane
        if pane.nodes:
            pane.marks ^= {pane.nodes[pane.at]}
            pane.step(1)

    def undo(self) -> bool:
        """Remove the marks of nodes. Return False if no node is marked."""
        had, self._pane.marks = bool(self._pane.marks), set()
        self._pane.refresh()
        return had
