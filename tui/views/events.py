"""What happened, as it happens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from tui import actions, cells
from tui.columns import Column
from tui.feed import Changes
from tui.paint import Piece
from tui.stage import stage
from tui.views.listed import Listed
from tui.views.view import bindings
from wire.api.cluster import EventView
from wire.text import plain

_BAD = ("Failed", "Lost", "Refused")


class Events(Listed[int, EventView]):
    """The journal's end; stays at the end as long as the cursor is there."""

    NAME = actions.EVENTS
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.EVENTS)

    def columns(self) -> Sequence[Column[EventView]]:
        """When, what, and the sentence."""
        return (
            Column("seq", "SEQ", 5, 8, lambda event: [(str(event.seq), "faint")], right=True),
            Column("at", "AT", 1, 12, self._at, 8),
            Column(
                "kind", "KIND", 3, 18, lambda event: [(plain(event.kind), _part(event))], 14, grow=1, most=26
            ),
            Column("job", "JOB", 4, 6, lambda event: [(self._job(event), "accent")], 5, right=True),
            Column("node", "NODE", 6, 12, lambda event: [(plain(event.node or ""), "muted")]),
            Column(
                "text",
                "WHAT HAPPENED",
                2,
                40,
                lambda event: [(plain(event.text), "text")],
                20,
                grow=9,
                most=200,
            ),
        )

    def _job(self, event: EventView) -> str:
        row = stage(self).model.jobs.rows.get(event.job or 0)
        return plain(row.label) if row else str(event.job or "")

    def _at(self, event: EventView) -> Sequence[Piece]:
        return [(cells.clock(event.at, stage(self).model.now()), "muted")]

    def status(self) -> Sequence[Piece]:
        """The event under the cursor, whole."""
        event = self.listing.rows.get(self.listing.cursor or -1)
        return [(plain(event.text, 400), "muted")] if event else [("nothing has happened yet", "muted")]

    def changed(self, changes: Changes) -> None:
        """New events arrive at the end."""
        if changes.events or changes.fresh:
            if self._at_end:
                self.listing.move_to(len(self.listing) - 1)
            self.table.sync()

    def moved(self) -> None:
        """At the end, the cursor goes along with what comes."""
        self._at_end = self.listing.index >= len(self.listing) - 1
        super().moved()

    _at_end = True

    def act_open(self) -> None:
        """Show the job or the node it is about."""
        event = self.listing.rows.get(self.listing.cursor or -1)
        if event is not None and event.job is not None:
            stage(self).open_job(event.job)
        elif event is not None and event.node is not None:
            stage(self).open_node(event.node)


def _part(event: EventView) -> str:
    return "bad" if any(word in event.kind for word in _BAD) else "muted"
