"""A list of rows with a cursor; thousands of them cost as much as a screenful."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from textual import events
from textual.strip import Strip

from tui import glyphs
from tui.columns import GUTTER, Column, fit_columns
from tui.listing import Key, Listing
from tui.paint import Piece, fit, length
from tui.stage import stage
from tui.widgets.pane import Pane

Row = TypeVar("Row")


class Table(Pane, Generic[Key, Row]):
    """Shows a listing; the window moves so that the cursor's row keeps its place on the screen."""

    HEAD = 1

    def __init__(
        self,
        listing: Listing[Key, Row],
        columns: Sequence[Column[Row]],
        *,
        on_open: Callable[[], None],
        on_move: Callable[[], None],
        on_empty: Callable[[], Sequence[Piece]] = tuple,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self.listing: Listing[Key, Row] = listing
        self._columns: Sequence[Column[Row]] = columns
        self._on_open, self._on_move, self._on_empty = on_open, on_move, on_empty
        self._fitted: list[tuple[Column[Row], int]] = []
        self._fitted_for = -1
        self._offset = 0
        self._anchor: Key | None = None

    @property
    def total(self) -> int:
        """Rows that pass the filter."""
        return len(self.listing)

    # -- moving -------------------------------------------------------------------------

    def step(self, by: int) -> None:
        """The cursor, up or down."""
        self.jump(self.listing.index + by)

    def jump(self, index: int) -> None:
        """The cursor, to a row."""
        before, top = self.listing.index, self.top
        self.listing.move_to(index)
        self._reveal()
        if top == self.top:
            self.refresh_line(before)
            self.refresh_line(self.listing.index)
        self._on_move()

    def sync(self) -> None:
        """The listing changed: keep the cursor's row where it is on the screen, and paint what differs."""
        if self._anchor is not None and self._anchor == self.listing.cursor:
            self.top = self.listing.index - self._offset
        self.top = max(0, min(self.top, self.total - self.page))
        self._reveal()
        self.refresh_changed()

    def _reveal(self) -> None:
        index = self.listing.index
        if index < self.top:
            self.scroll_lines(index)
        elif index >= self.top + self.page:
            self.scroll_lines(index - self.page + 1)
        self._anchor, self._offset = self.listing.cursor, self.listing.index - self.top

    def on_resize(self) -> None:
        """The cursor stays in sight."""
        self._offset = min(self._offset, self.page - 1)
        self.sync()

    def on_click(self, event: events.Click) -> None:
        """A click puts the cursor there, two open the row; on the head it sorts."""
        if event.y < self.HEAD:
            self._sort_at(event.x)
        elif (index := self.top + event.y - self.HEAD) < self.total:
            self.jump(index)
            if event.chain == 2:
                self._on_open()

    def _sort_at(self, x: int) -> None:
        left = GUTTER
        for column, width in self._fit(self.size.width):
            if left <= x < left + width and column.name in self.listing.sorts:
                self.listing.sort_by(column.name)
                self.sync()
                self._on_move()
            left += width + self._gap

    # -- painting -----------------------------------------------------------------------

    @property
    def _gap(self) -> int:
        return 1 if self.size.width < 100 else 2

    def _fit(self, width: int) -> list[tuple[Column[Row], int]]:
        if self._fitted_for != width:
            # One cell stays free for the scroll bar, so that columns do not jump when it comes.
            self._fitted, self._fitted_for = fit_columns(self._columns, width - 1, self._gap), width
        return self._fitted

    def _window_line(self, y: int) -> Strip:
        if self.total or y != self.HEAD + 1:
            return super()._window_line(y)
        return stage(self).paint.strip([(" " * GUTTER, "text"), *self._on_empty()], self.size.width)

    def paint_head(self, _y: int, width: int) -> Strip:
        """The titles; the one sorted by carries an arrow."""
        pieces: list[Piece] = [(" " * GUTTER, "head")]
        for column, cells in self._fit(width):
            title, part = column.title, "head"
            if column.name == self.listing.sort:
                arrow = glyphs.DESCENDING if self.listing.reverse else glyphs.ASCENDING
                title, part = (f"{title[: max(0, cells - 1)]}{arrow}", "sorted")
            pieces += [(fit(title, cells, column.right), part), (" " * self._gap, "head")]
        return stage(self).paint.strip(pieces, width)

    def paint_line(self, index: int, width: int) -> Strip:
        """One row."""
        key = self.listing.key_at(index)
        row = self.listing.rows[key]
        here = index == self.listing.index
        ground = ("cursor" if self.has_focus else "cursor-away") if here else ""
        pieces: list[Piece] = [
            (glyphs.CURSOR if here else " ", "edge"),
            (glyphs.MARK if key in self.listing.marks else " ", "mark"),
        ]
        gap = (" " * self._gap, "text")
        for column, cells in self._fit(self.size.width):
            pieces.extend(_cell(column, row, cells))
            pieces.append(gap)
        return stage(self).paint.strip(pieces, width, ground)


def _cell(column: Column[Any], row: Any, cells: int) -> Sequence[Piece]:
    pieces = column.cell(row)
    if len(pieces) == 1:
        text, part = pieces[0]
        return ((fit(text, cells, column.right), part),)
    shown: list[Piece] = []
    left = cells
    for text, part in pieces:
        if left <= 0:
            break
        text = text if length([(text, part)]) <= left else fit(text, left)
        shown.append((text, part))
        left -= length([(text, part)])
    return [*shown, (" " * left, "text")] if left > 0 else shown
