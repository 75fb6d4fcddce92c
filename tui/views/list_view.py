"""Base class of views that show a list with a filter, a sort order and a cursor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from textual.app import ComposeResult

from tui.app_interface import app_of
from tui.data.lists.filter import FilterError
from tui.data.lists.listing import Key, Listing
from tui.dialogs.menu import Menu, MenuEntry
from tui.look import glyphs
from tui.look.columns import ListColumn
from tui.look.styled_lines import Piece
from tui.views.view import View
from tui.widgets.table import ListTable
from wire.text import printable

Row = TypeVar("Row")


class ListView(View, Generic[Key, Row]):
    def __init__(self, listing: Listing[Key, Row]) -> None:
        super().__init__()
        self.listing: Listing[Key, Row] = listing
        self.table: ListTable[Key, Row] = ListTable(
            listing,
            self.columns(),
            on_open=lambda: app_of(self).act("open"),
            on_move=self.moved,
            on_empty=self.empty,
            tint=self.tint,
            besides=self.besides,
        )

    def columns(self) -> Sequence[ListColumn[Row]]:
        raise NotImplementedError

    def tint(self, row: Row) -> str:  # noqa: ARG002 - most lists have rows of one background
        """Return the name of the style with the background of a row; empty for the usual background."""
        return ""

    def besides(self, row: Row) -> object:  # noqa: ARG002 - the cells of most lists depend only on the row
        """Return the data that the cells of a row show but the row does not contain, such as the progress of
        a folded group. The table repaints a row when this data changes.
        """
        return None

    def empty(self) -> Sequence[Piece]:
        """Return the text that is shown if the list has no shown rows."""
        return ()

    def compose(self) -> ComposeResult:
        yield self.table

    @property
    def pane(self) -> ListTable[Key, Row]:
        return self.table

    def moved(self) -> None:
        """Repaint the lines around the table, because the cursor or the sort order has changed."""
        app_of(self).refresh_lines()

    @property
    def filter_text(self) -> str:
        return self.listing.filter.text

    def narrow(self, text: str) -> str:
        """Show only rows that pass this filter. Return the error if the text is not a valid filter,
        otherwise an empty text.
        """
        try:
            self.listing.narrow(text)
        except FilterError as error:
            return str(error)
        self.table.sync()
        self.moved()
        return ""

    def note(self, *, brief: bool = False) -> Sequence[Piece]:
        """Return a text with the number of marked rows, the filter, the number of shown rows and the sort
        order. With `brief`, a long filter is cut earlier and the sort order is left out.
        """
        listing = self.listing
        arrow = glyphs.DESCENDING if listing.reverse else glyphs.ASCENDING
        pieces: list[Piece] = []
        if listing.marks:
            word = "" if brief else " marked"
            pieces += [(f"{glyphs.MARK} {len(listing.marks)}{word}", "mark"), ("  ", "text")]
        if listing.filter:
            pieces += [(f"/{printable(listing.filter.text, 16 if brief else 30)}", "accent"), ("  ", "text")]
            pieces.append((f"{len(listing):,} of {len(listing.rows):,}", "text"))
        else:
            pieces.append((f"{len(listing):,}", "muted"))
        if len(listing.sorts) > 1 and not brief:
            pieces.append((f"  by {listing.sort} {arrow}", "muted"))
        return [*pieces, (" ", "text")]

    def act_sort(self) -> None:
        """Open the menu that sets the sort column."""
        listing = self.listing
        entries = [MenuEntry(name, name, "reverse" if name == listing.sort else "") for name in listing.sorts]

        def sort(name: str | None) -> None:
            if name is not None:
                listing.sort_by(name)
                self.table.sync()
                self.moved()

        self.app.push_screen(Menu("Sort by", entries, at=listing.sort), sort)

    def undo(self) -> bool:
        """Remove the filter. If the list has no filter, unmark all rows. Return False if the list has no
        filter and no marked rows.
        """
        if super().undo():
            return True
        if self.listing.marks:
            self.listing.marks.clear()
            self.table.refresh()
            self.moved()
            return True
        return False

    def act_mark(self) -> None:
        if self.listing.cursor is not None:
            self._marked_last = self.listing.cursor
            self.listing.toggle(self.listing.cursor)
            self.table.step(1)

    def act_range(self) -> None:
        """Mark all rows between the row that was marked last and the row under the cursor."""
        if self.listing.cursor is not None:
            self.listing.mark_between(
                self.listing.cursor if self._marked_last is None else self._marked_last, self.listing.cursor
            )
            self._marked_last = self.listing.cursor
            self.table.refresh()
            self.moved()

    def act_all(self) -> None:
        self.listing.mark_shown()
        self.table.refresh()
        self.moved()

    _marked_last: Key | None = None
