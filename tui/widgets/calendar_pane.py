"""Draws the calendar of reservations: one row for each node, hours from left to right, and a window (the time
of a new reservation).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from textual import events
from textual.strip import Strip

from tui.app_interface import app_of
from tui.data.lists.cluster_lists import natural_sort_key
from tui.look import glyphs
from tui.look.styled_lines import Piece, fit
from tui.panels.reservations import occurrences, run_until
from tui.plan.timeline import Timeline
from tui.widgets.scrolling_pane import Pane
from wire.api.jobs import JobView
from wire.api.nodes import NodeView
from wire.api.policy.reservations import ReservationView
from wire.names import NodeState
from wire.text import printable

NAME_WIDTH: Final = 16
JOB, NO_LIMIT, RESERVED, DRAINED, NOW, WINDOW, CONFLICT = "░", "▒", "R", "╳", "▏", "━", "!"
FIRST_SPAN_S: Final = 43_200.0
HOUR_S: Final = 3_600.0


class CalendarPane(Pane):
    """One row for each node. A row shows the reservations of the node, the times until which running jobs may
    use it, and on the chosen nodes the window of the new reservation.
    """

    HEAD = 1

    def __init__(self, moved: Callable[[], None]) -> None:
        super().__init__()
        self._cursor_moved = moved
        self.nodes: list[str] = []
        self.at = 0
        self.marks: set[str] = set()
        self.reservations: Sequence[ReservationView] = ()
        self.span_s = FIRST_SPAN_S
        self.starts_at = self.begin = 0.0
        """`starts_at` is the begin of the window, and `begin` the time at the left edge of the chart."""
        self.length_s = 2 * HOUR_S
        self._jobs: dict[str, list[JobView]] = {}

    @property
    def total(self) -> int:
        return len(self.nodes)

    @property
    def timeline(self) -> Timeline:
        return Timeline(self.begin, self.span_s, max(1, self.size.width - NAME_WIDTH - 1))

    @property
    def chosen(self) -> list[str]:
        """Return the nodes of the new reservation: the marked nodes, or the node under the cursor."""
        here = self.nodes[self.at : self.at + 1]
        return [node for node in self.nodes if node in self.marks] or here

    def update(self) -> None:
        """Read the nodes and the running jobs from the model, and repaint the lines that have changed."""
        model = app_of(self).model
        here = self.nodes[self.at] if self.nodes else None
        self.nodes = sorted(model.nodes.rows, key=natural_sort_key)
        self.at = self.nodes.index(here) if here in model.nodes.rows else min(self.at, max(0, self.total - 1))
        self.marks &= set(self.nodes)
        self._jobs = {}
        for job in model.running.values():
            for held in job.held:
                self._jobs.setdefault(held.node, []).append(job)
        if not self.starts_at:
            self.starts_at = (model.now() // HOUR_S + 1) * HOUR_S
        if model.now() > self.begin + self.span_s or not self.begin:
            self.begin = model.now() - self.span_s / 24
        self.refresh_changed()

    def move_window(self, steps: int) -> None:
        """Move the window by `steps` steps of `step_s` seconds: to a later time, or to an earlier time if
        `steps` is negative. The window never begins before the step that contains the present time. If the
        window leaves the shown time, the shown time moves with it.
        """
        now = app_of(self).model.now()
        step = self.step_s
        self.starts_at = max((now // step) * step, self.starts_at + steps * step)
        end = self.starts_at + self.length_s
        if end > self.begin + self.span_s or self.starts_at < self.begin:
            self.begin = max(now - self.span_s / 24, self.starts_at - self.span_s / 4)
        self.refresh()

    @property
    def step_s(self) -> float:
        """Return the seconds by which a key moves the window. The shorter the shown time, the smaller the
        step.
        """
        return 900.0 if self.span_s <= 21_600 else 1_800.0 if self.span_s <= 43_200 else self.span_s / 48

    def resize_window(self, steps: int) -> None:
        self.length_s = max(self.step_s, self.length_s + steps * self.step_s)
        self.refresh()

    def zoom(self, by: int) -> None:
        self.span_s = replace(self.timeline).zoomed(by).span_s
        now = app_of(self).model.now()
        self.begin = max(now - self.span_s / 24, min(self.begin, self.starts_at - self.span_s / 8))
        self.refresh()

    def step(self, by: int) -> None:
        self.jump(self.at + by)

    def jump(self, index: int) -> None:
        self.at = max(0, min(index, self.total - 1))
        if not self.top <= self.at < self.top + self.page:
            self.scroll_lines(self.at if self.at < self.top else self.at - self.page + 1)
        self.refresh()
        self._cursor_moved()
        app_of(self).refresh_lines()

    def on_click(self, event: events.Click) -> None:
        """Choose the node of the clicked row, and begin the window at the clicked time."""
        if event.y >= self.HEAD and self.top + event.y - self.HEAD < self.total:
            self.jump(self.top + event.y - self.HEAD)
            if event.x >= NAME_WIDTH:
                line, step = self.timeline, self.step_s
                clicked = line.begin + (event.x - NAME_WIDTH + 1) * line.cell_s
                self.starts_at = max(app_of(self).model.now() // step * step, clicked // step * step)
                self.refresh()
                app_of(self).refresh_lines()

    # -- jobs and reservations in the window ----------------------------------------------

    def conflicts(self) -> tuple[list[JobView], list[ReservationView]]:
        """Return the running jobs and the reservations that may use a chosen node within the window."""
        end, nodes = self.starts_at + self.length_s, set(self.chosen)
        jobs = {
            job.id: job
            for node in nodes
            for job in self._jobs.get(node, [])
            if run_until(job) > self.starts_at
        }
        taken = [
            row
            for row in self.reservations
            if nodes & set(row.nodes)
            and any(begin < end and until > self.starts_at for begin, until in occurrences(row, end))
        ]
        return list(jobs.values()), taken

    # -- painting the rows ----------------------------------------------------------------

    def paint_head(self, _y: int, width: int) -> Strip:
        now = app_of(self).model.now()
        return app_of(self).paint.strip(
            [(" " * NAME_WIDTH, "text"), (self.timeline.line(now), "muted")], width
        )

    def paint_line(self, index: int, width: int) -> Strip:
        name = self.nodes[index]
        here = index == self.at
        pieces: list[Piece] = [
            (glyphs.CURSOR if here else " ", "edge"),
            (glyphs.MARK if name in self.marks else " ", "mark"),
            (fit(printable(name, 40), NAME_WIDTH - 3) + " ", "strong" if here else "text"),
            *self._chart(name, app_of(self).model.nodes.rows.get(name)),
        ]
        return app_of(self).paint.strip(pieces, width)

    def _chart(self, name: str, node: NodeView | None) -> list[Piece]:
        """Return the cells of a row.

        1. Draw the times until which running jobs may use the node. For a job without a time limit, draw
           another symbol up to the right edge.
        2. If the node is drained or does not report, draw a symbol for this from now to the right edge. Above
           all this, draw the reservations with their names.
        3. Mark the present time, if nothing is drawn in its cell.
        4. On a chosen node, draw the window. A cell of the window in which something else is drawn becomes a
           red exclamation mark.
        """
        line, now = self.timeline, app_of(self).model.now()
        cells: list[Piece] = [(" ", "text")] * line.width
        for job in self._jobs.get(name, []):
            sign: Piece = (JOB, "running") if job.time_limit_s else (NO_LIMIT, "warn")
            _fill(cells, line.cells(job.started_at or now, run_until(job)), sign)
        if node is not None and (node.state is NodeState.DRAINED or node.state.away):
            _fill(cells, line.cells(now, line.end), (DRAINED, "drained"))
        for row in self.reservations:
            if name in row.nodes:
                style = "warn" if row.spec.maintenance else "held"
                for begin, end in occurrences(row, line.end):
                    _fill(cells, line.cells(begin, end), (RESERVED, style))
                    _write(cells, line.cells(begin, end), f" {printable(row.spec.name, 24)} ", style)
        column = line.column(now)
        if 0 <= column < line.width and cells[column] == (" ", "text"):
            cells[column] = (NOW, "accent")
        if name in self.chosen:
            for column in line.cells(self.starts_at, self.starts_at + self.length_s):
                free = cells[column] in ((" ", "text"), (NOW, "accent"))
                cells[column] = (WINDOW, "good") if free else (CONFLICT, "bad")
        return [
            ("".join(text for text, _ in same), style)
            for style, same in groupby(cells, key=lambda cell: cell[1])
        ]


def _fill(cells: list[Piece], columns: range, sign: Piece) -> None:
    for column in columns:
        cells[column] = sign


def _write(cells: list[Piece], columns: range, text: str, style: str) -> None:
    if text.isascii() and len(text) + 2 <= len(columns):
        for column, letter in zip(columns[1:], text, strict=False):
            cells[column] = (letter, style)


def filled_form(pane: CalendarPane) -> Mapping[str, str]:
    """Return the texts with which the form of a new reservation opens: the chosen nodes, and the begin and
    the length of the window.
    """
    minutes = round(pane.length_s / 60)
    length = f"{minutes // 60}h" if minutes % 60 == 0 else f"{minutes}m"
    start = time.strftime("%Y-%m-%dT%H:%M", time.localtime(pane.starts_at))
    return {"nodes": " ".join(pane.chosen), "start": start, "for": length}
