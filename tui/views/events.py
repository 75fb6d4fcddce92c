"""The list of events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from tui import actions
from tui.app_interface import app_of
from tui.data.cluster_feed import Changes
from tui.look import cells
from tui.look.columns import ListColumn
from tui.look.styled_lines import Piece
from tui.pulse.lists import QUIET, event_style
from tui.views.list_view import ListView
from tui.views.view import bindings
from wire.api.service.cluster import EventView
from wire.text import printable


class EventsView(ListView[int, EventView]):
    """The list of the latest events. While the cursor is on the last event, the cursor moves to each new
    event.
    """

    NAME = actions.EVENTS
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.EVENTS)

    def columns(self) -> Sequence[ListColumn[EventView]]:
        return (
            ListColumn("seq", "SEQ", 5, 8, lambda event: [(str(event.seq), "faint")], right=True),
            ListColumn("at", "AT", 1, 12, self._at, 8),
            ListColumn(
                "kind",
                "KIND",
                3,
                18,
                lambda event: [(printable(event.kind), _part(event))],
                14,
                grow=1,
                most=26,
            ),
            ListColumn("job", "JOB", 4, 6, lambda event: [(self._job(event), "accent")], 5, right=True),
            ListColumn("node", "NODE", 6, 12, lambda event: [(printable(_nodes(event)), "muted")]),
            ListColumn(
                "text",
                "WHAT HAPPENED",
                2,
                40,
                lambda event: [(printable(event.text), _text_part(event))],
                20,
                grow=9,
                most=200,
            ),
        )

    def _job(self, event: EventView) -> str:
        row = app_of(self).model.jobs.rows.get(event.job or 0)
        return printable(row.label) if row else str(event.job or "")

    def _at(self, event: EventView) -> Sequence[Piece]:
        return [(cells.clock(event.at, app_of(self).model.now()), "muted")]

    def status(self) -> Sequence[Piece]:
        """Return the full sentence of the event under the cursor, for the status line."""
        event = self.listing.rows.get(self.listing.cursor or -1)
        return [(printable(event.text, 400), "muted")] if event else [("no events yet", "muted")]

    def changed(self, changes: Changes) -> None:
        if changes.events or changes.fresh:
            if self._at_end:
                self.listing.move_to(len(self.listing) - 1)
            self.table.sync()

    def moved(self) -> None:
        """Follow new events if the cursor has moved to the last event; otherwise stop following."""
        self._at_end = self.listing.index >= len(self.listing) - 1
        super().moved()

    _at_end = True

    def act_open(self) -> None:
        """Open the details of the job or the node that the event under the cursor names."""
        event = self.listing.rows.get(self.listing.cursor or -1)
        if event is not None and event.job is not None:
            app_of(self).open_job(event.job)
        elif event is not None and event.node is not None:
            app_of(self).open_node(event.node)


def _nodes(event: EventView) -> str:
    """Return the node of the event, or the nodes on which the event placed a job."""
    return event.node or ",".join(str(each["node"]) for each in event.data.get("allocations", ()))


def _part(event: EventView) -> str:
    return event_style(event.kind)


def _text_part(event: EventView) -> str:
    """Return the name of the style for an event's text: "faint" if the event only repeats another event of
    the same job.
    """
    if event.kind in QUIET:
        return "faint"
    style = event_style(event.kind)
    return style if style in ("bad", "warn") else "text"
