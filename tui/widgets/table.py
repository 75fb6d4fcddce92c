"""A table of rows with a cursor. The time for painting the table depends only on the number of
visible rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from textual import events
from textual.strip import Strip

from tui.app_interface import app_of
from tui.data.lists.listing import Key, Listing
from tui.look import glyphs
from tui.look.columns import GUTTER, ListColumn, fit_columns
from tui.look.styled_lines import Piece, fit, length
from tui.widgets.scrolling_pane import Pane

Row = TypeVar("Row")


class ListTable(Pane, Generic[Key, Row]):
    """Shows the rows of a Listing (a filtered and sorted list) as a table. If rows change, the row under the
    cursor stays on the same line of the screen.
    """

    HEAD = 1

    def __init__(
        self,
        listing: Listing[Key, Row],
        columns: Sequence[ListColumn[Row]],
        *,
        on_open: Callable[[], None],
        on_move: Callable[[], None],
        on_empty: Callable[[], Sequence[Piece]] = tuple,
        tint: Callable[[Row], str] = lambda _: "",
        besides: Callable[[Row], object] = lambda _: None,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self.listing: Listing[Key, Row] = listing
        self._columns: Sequence[ListColumn[Row]] = columns
        self._on_open, self._on_move, self._on_empty = on_open, on_move, on_empty
        self._tint = tint
        """A function that returns the name of the style with the background of a row; empty for the usual
        background.
        """
        self._besides = besides
        """A function that returns the data that the cells of a row show but the row does not contain."""
        self._compared: dict[int, tuple[Row | None, tuple[object, ...]]] = {}
        """For each line of the screen, the row at the last call of `sync_rows`, and the rest of what the line
        shows: its scroll bar, the data of `_besides`, the cursor and the mark.
        """
        self.hidden: set[str] = set()
        """The names of the columns that the user has hidden."""
        self._fitted: list[tuple[ListColumn[Row], int]] = []
        self._fitted_for = -1
        self._offset = 0
        self._anchor: Key | None = None

    @property
    def total(self) -> int:
        return len(self.listing)

    def visible_keys(self) -> list[Key]:
        """Return the keys of the rows that are visible now."""
        return [self.listing.key_at(at) for at in range(self.top, min(self.top + self.page, self.total))]

    def column_titles(self) -> list[tuple[str, str]]:
        """Return the name and the title of each column that can be hidden: all but the first one."""
        return [(column.name, column.title) for column in self._columns[1:]]

    def hide(self, names: set[str]) -> None:
        """Hide the columns with these names, and show all others that fit into the width of the screen. The
        first column is always shown, and names of unknown columns are left out.
        """
        self.hidden = names & {name for name, _ in self.column_titles()}
        self._fitted_for = -1
        self.refresh()

    # -- movement of the cursor and of rows -----------------------------------------------

    def step(self, by: int) -> None:
        self.jump(self.listing.index + by)

    def jump(self, index: int) -> None:
        before, top = self.listing.index, self.top
        self.listing.move_to(index)
        self._reveal()
        if top == self.top:
            self.refresh_line(before)
            self.refresh_line(self.listing.index)
        self._on_move()

    def sync(self) -> None:
        """Repaint the lines that have changed. The row under the cursor stays on its line of the screen."""
        self._keep_cursor_line()
        self.refresh_changed()

    def sync_rows(self) -> None:
        """Do the same as `sync`, but do not compare lines whose row is the same as at the last call, so that
        many updates per second need little time. Such a line may show a time that is no longer right.
        """
        self._keep_cursor_line()
        self.refresh_changed(self._lines_with_other_rows() if self.total else None)

    def _lines_with_other_rows(self) -> list[int]:
        """Return the numbers of the screen lines whose row, mark, cursor or scroll bar is not the same as at
        the last call.
        """
        changed, thumb = [], self._thumb() if self.total > self.page else range(0)
        for y in range(self.HEAD, self.size.height):
            index = self.top + y - self.HEAD
            row: Row | None = None
            state: tuple[object, ...] = (y - self.HEAD in thumb,)
            if index < self.total:
                key = self.listing.key_at(index)
                row, here = self.listing.rows[key], index == self.listing.index
                state += (self._besides(row), here, key in self.listing.marks)
            before = self._compared.get(y)
            if before is None or before[0] is not row or before[1] != state:
                changed.append(y)
                self._compared[y] = row, state
        return changed

    def _keep_cursor_line(self) -> None:
        if self._anchor is not None and self._anchor == self.listing.cursor:
            self.top = self.listing.index - self._offset
        self.top = max(0, min(self.top, self.total - self.page))
        self._reveal()

    def _reveal(self) -> None:
        index = self.listing.index
        if index < self.top:
            self.scroll_lines(index)
        elif index >= self.top + self.page:
            self.scroll_lines(index - self.page + 1)
        self._anchor, self._offset = self.listing.cursor, self.listing.index - self.top

    def on_resize(self) -> None:
        self._offset = min(self._offset, self.page - 1)
        self.sync()

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the row that was clicked. A double click opens the row. A click on a column
        title sorts by that column.
        """
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

    # -- painting the table -------------------------------------------------------------

    @property
    def _gap(self) -> int:
        return 1 if self.size.width < 100 else 2

    def _fit(self, width: int) -> list[tuple[ListColumn[Row], int]]:
        if self._fitted_for != width:
            # Keep one cell free for the scroll bar, so that the columns do not move when the scroll bar
            # appears.
            shown = [column for column in self._columns if column.name not in self.hidden]
            self._fitted, self._fitted_for = fit_columns(shown, width - 1, self._gap), width
        return self._fitted

    def _window_line(self, y: int) -> Strip:
        if self.total or y != self.HEAD + 1:
            return super()._window_line(y)
        return app_of(self).paint.strip([(" " * GUTTER, "text"), *self._on_empty()], self.size.width)

    def paint_head(self, _y: int, width: int) -> Strip:
        """Paint the column titles, with an arrow at the column by which the list is sorted."""
        pieces: list[Piece] = [(" " * GUTTER, "head")]
        for column, cells in self._fit(width):
            title, part = column.title, "head"
            if column.name == self.listing.sort:
                arrow = glyphs.DESCENDING if self.listing.reverse else glyphs.ASCENDING
                title, part = (f"{title[: max(0, cells - 1)]}{arrow}", "sorted")
            pieces += [(fit(title, cells, column.right), part), (" " * self._gap, "head")]
        return app_of(self).paint.strip(pieces, width)

    def paint_line(self, index: int, width: int) -> Strip:
        key = self.listing.key_at(index)
        row = self.listing.rows[key]
        here = index == self.listing.index
        ground = ("cursor" if self.has_focus else "cursor-away") if here else self._tint(row)
        pieces: list[Piece] = [
            (glyphs.CURSOR if here else " ", "edge"),
            (glyphs.MARK if key in self.listing.marks else " ", "mark"),
        ]
        gap = (" " * self._gap, "text")
        for column, cells in self._fit(self.size.width):
            pieces.extend(_cell(column, row, cells))
            pieces.append(gap)
        return app_of(self).paint.strip(pieces, width, ground)


def _cell(column: ListColumn[Any], row: Any, cells: int) -> Sequence[Piece]:
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
