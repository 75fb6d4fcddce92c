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
from tui.panels.graphs import graph_lines
from tui.panels.jobs import job_lines
from tui.panels.reservations import free_graph, overlap_lines
from tui.views.view import View, bindings
from tui.widgets.calendar_pane import DRAINED, JOB, NAME_WIDTH, NO_LIMIT, RESERVED, CalendarPane, filled_form
from tui.widgets.facts import Facts
from wire.api.nodes import NodeView
from wire.api.policy.reservations import ReservationList
from wire.text import counted, duration, printable

REASK_S: Final = 5
MOST_JOBS: Final = 16
"""The greatest height of the list of jobs on the chosen nodes, in lines."""


class CalendarView(View):
    """Shows the times at which nodes are reserved, and the times until which running jobs may use the nodes.
    The user chooses nodes and a window (the time of a new reservation), and opens the form of a new
    reservation, in which the nodes and the window are filled in.
    """

    NAME = actions.CALENDAR
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.CALENDAR)

    def __init__(self) -> None:
        super().__init__()
        self._pane = CalendarPane(self._draw)
        self._below = Facts()
        self._ticks = 0

    def compose(self) -> ComposeResult:
        yield self._pane
        yield self._below

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
        self._draw()

    def tick(self) -> None:
        self._ticks += 1
        if self._ticks % REASK_S == 0:
            self._ask()
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        """Show the chart. In the lines below it, show the free GPUs over time, the jobs that may run into a
        reservation, the jobs on the chosen nodes, and the graphs of the cluster.
        """
        pane, model, width = self._pane, app_of(self).model, self.size.width
        pane.update()
        if not self.display or not width:
            return
        free = self.size.height - pane.HEAD - pane.total
        overlaps = overlap_lines(pane.reservations, model, width, free // 3)
        jobs = self._jobs_on_chosen(width, min(MOST_JOBS, free // 3))
        graphs = graph_lines(model, width, free // 3)
        free -= len(overlaps) + len(jobs) + len(graphs)
        chart = free_graph(pane.reservations, model, pane.timeline, NAME_WIDTH, free)
        self._below.update([*chart, *overlaps, *jobs, *graphs])

    def _jobs_on_chosen(self, width: int, height: int) -> list[list[Piece]]:
        nodes = set(self._pane.chosen)
        title = f"jobs on {', '.join(self._pane.chosen[:4])}"
        lines = job_lines(
            title,
            lambda job: any(held.node in nodes for held in job.held),
            app_of(self).model,
            width,
            height - 1,
        )
        return [[], *lines] if lines else []

    def _ask(self) -> None:
        app = app_of(self)
        if app.model.connection.state != "lost":
            app.requests.ask(lambda client: client.reservations(), self._answered)

    def _answered(self, answer: ReservationList | Failure) -> None:
        if self.is_attached and isinstance(answer, ReservationList):
            self._pane.reservations = answer.reservations
            self._draw()
            app_of(self).refresh_lines()

    def act_open(self) -> None:
        if self._pane.nodes:
            app_of(self).open_node(self._pane.nodes[self._pane.at])

    def act_new_reservation(self) -> None:
        """Open the form of a new reservation, with the window and the chosen nodes filled in."""
        app_of(self).reserve(filled_form(self._pane))

    def act_window_later(self) -> None:
        self._pane.move_window(1)
        self._draw()
        app_of(self).refresh_lines()

    def act_window_earlier(self) -> None:
        self._pane.move_window(-1)
        self._draw()
        app_of(self).refresh_lines()

    def act_window_longer(self) -> None:
        self._pane.resize_window(1)
        app_of(self).refresh_lines()

    def act_window_shorter(self) -> None:
        self._pane.resize_window(-1)
        app_of(self).refresh_lines()

    def act_longer(self) -> None:
        self._pane.zoom(1)
        self._draw()

    def act_shorter(self) -> None:
        self._pane.zoom(-1)
        self._draw()

    def act_mark_node(self) -> None:
        pane = self._pane
        if pane.nodes:
            pane.marks ^= {pane.nodes[pane.at]}
            pane.step(1)

    def undo(self) -> bool:
        """Remove the marks of nodes. Return False if no node is marked."""
        had, self._pane.marks = bool(self._pane.marks), set()
        self._pane.refresh()
        self._draw()
        return had
