"""A view that is a list: filter, order and cursor, whatever the rows are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from textual.app import ComposeResult

from tui import glyphs
from tui.columns import Column
from tui.dialogs.menu import Entry, Menu
from tui.filter import Unreadable
from tui.listing import Key, Listing
from tui.paint import Piece
from tui.stage import stage
from tui.views.view import View
from tui.widgets.table import Table
from wire.text import plain

Row = TypeVar("Row")


class Listed(View, Generic[Key, Row]):
    """A listing in a table."""

    def __init__(self, listing: Listing[Key, Row]) -> None:
        super().__init__()
        self.listing: Listing[Key, Row] = listing
        self.table: Table[Key, Row] = Table(
            listing,
            self.columns(),
            on_open=lambda: stage(self).act("open"),
            on_move=self.moved,
            on_empty=self.empty,
        )

    def columns(self) -> Sequence[Column[Row]]:
        """The columns, in their order."""
        raise NotImplementedError

    def empty(self) -> Sequence[Piece]:
        """What stands in place of rows where there are none."""
        return ()

    def compose(self) -> ComposeResult:
        """The table fills the view."""
        yield self.table

    @property
    def pane(self) -> Table[Key, Row]:
        """The table."""
        return self.table

    def moved(self) -> None:
        """The cursor or the order changed: what is said about them is out of date."""
        stage(self).refresh_lines()

    @property
    def filter_text(self) -> str:
        """The filter in force."""
        return self.listing.filter.text

    def narrow(self, text: str) -> str:
        """Filter by this; says what is wrong with it, or nothing."""
        try:
            self.listing.narrow(text)
        except Unreadable as error:
            return str(error)
        self.table.sync()
        self.moved()
        return ""

    def note(self) -> Sequence[Piece]:
        """Order, filter, how many."""
        listing = self.listing
        arrow = glyphs.DESCENDING if listing.reverse else glyphs.ASCENDING
        pieces: list[Piece] = []
        if listing.marks:
            pieces += [(f"{glyphs.MARK} {len(listing.marks)} marked", "mark"), ("  ", "text")]
        if listing.filter:
            pieces += [(f"/{plain(listing.filter.text, 30)}", "accent"), ("  ", "text")]
            pieces.append((f"{len(listing):,} of {len(listing.rows):,}", "text"))
        else:
            pieces.append((f"{len(listing):,}", "muted"))
        if len(listing.sorts) > 1:
            pieces.append((f"  by {listing.sort} {arrow}", "muted"))
        return [*pieces, (" ", "text")]

    def act_sort(self) -> None:
        """Choose the order."""
        listing = self.listing
        entries = [Entry(name, name, "turn round" if name == listing.sort else "") for name in listing.sorts]

        def sort(name: str | None) -> None:
            if name is not None:
                listing.sort_by(name)
                self.table.sync()
                self.moved()

        self.app.push_screen(Menu("Sort by", entries, at=listing.sort), sort)
