"""A filtered and sorted list of rows. An update changes only the rows that are new or different. The cursor
and the marks stay on their rows.

Invariant: the rows are always in the order that sorting all rows would give. Cost: O(log n) comparisons per
changed row. The list uses no widget and no clock.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from tui.data.lists.filter import Fields, RowFilter, parse

Row = TypeVar("Row")
Key = TypeVar("Key", int, str)


class Listing(Generic[Key, Row]):
    """A list of rows: all rows by key, and in sorted order those that pass the filter and are not hidden."""

    def __init__(
        self,
        key: Callable[[Row], Key],
        sorts: Mapping[str, Callable[[Row], Any]],
        fields: Fields[Row],
        haystack: Callable[[Row], str],
    ) -> None:
        self._key: Callable[[Row], Key] = key
        self.sorts = sorts
        self.fields = fields
        self.rows: dict[Key, Row] = {}
        self.sort, self.reverse = next(iter(sorts)), False
        self.filter: RowFilter[Row] = RowFilter()
        self.hidden: set[Key] = set()
        """Keys of rows that are never shown, even if they pass the filter (the rows of folded jobs)."""
        self.marks: set[Key] = set()
        self.cursor: Key | None = None
        self._index = 0
        # The key of the row to which the user moved the cursor. It is None until the user moves the cursor;
        # until then the cursor stays on the first row.
        self._home: Key | None = None
        self._home_value: Any = None
        """The sort key of the row `_home` when the row was last shown; None if the sort order has changed
        since then.
        """
        self._order: list[tuple[Any, Key]] = []
        self._placed: dict[Key, Any] = {}
        self._text_of = haystack
        self._texts: dict[Key, str] = {}

    # -- shown rows ------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Row]:
        order = reversed(self._order) if self.reverse else iter(self._order)
        return (self.rows[key] for _, key in order)

    def __getitem__(self, index: int) -> Row:
        return self.rows[self.key_at(index)]

    def key_at(self, index: int) -> Key:
        return self._order[-1 - index if self.reverse else index][1]

    def index_of(self, key: Key) -> int | None:
        """Return the index of the row with this key among the shown rows; None if the row is not shown or
        does not exist.
        """
        if key not in self._placed:
            return None
        at = bisect_left(self._order, (self._placed[key], key))
        return len(self._order) - 1 - at if self.reverse else at

    # -- changes of rows, order and filter ----------------------------------------------

    def put(self, rows: Iterable[Row]) -> None:
        rows = list(rows)
        if len(rows) * 4 > len(self.rows):
            for row in rows:
                self._remember(row)
            self._rebuild()
        else:
            for row in rows:
                self._remember(row)
                self._place(row)
        self._restore_cursor()

    def replace(self, rows: Iterable[Row]) -> None:
        """Replace all rows. Marks of rows that no longer exist are removed."""
        self.rows.clear()
        self._texts.clear()
        for row in rows:
            self._remember(row)
        self.marks &= self.rows.keys()
        self._rebuild()
        self._restore_cursor()

    def drop(self, keys: Iterable[Key]) -> None:
        for key in keys:
            if self.rows.pop(key, None) is not None:
                self._texts.pop(key, None)
                self.marks.discard(key)
                self._unplace(key)
        self._restore_cursor()

    def sort_by(self, sort: str) -> None:
        """Sort by this column. If the list is already sorted by this column, reverse the order."""
        self.arrange(sort, not self.reverse if sort == self.sort else False)

    def arrange(self, sort: str, reverse: bool) -> None:
        self.sort, self.reverse = sort, reverse
        self._home_value = None
        self._rebuild()
        self._restore_cursor()

    def narrow(self, text: str) -> None:
        """Show only rows that pass this filter. Raise `FilterError` of the module filter, and
        change nothing, if the text is not a valid filter.
        """
        self.filter = parse(text, self.fields, self._haystack)
        self.rearrange()

    def rearrange(self) -> None:
        """Sort all rows again. The caller has changed the filter, the hidden rows or values by which rows are
        sorted.
        """
        self._rebuild()
        self._restore_cursor()

    # -- cursor and marks ---------------------------------------------------------------

    @property
    def index(self) -> int:
        """Return the index of the row under the cursor; 0 if the list is empty."""
        return self._index

    def move_to(self, index: int) -> None:
        """Move the cursor to this index, or to the nearest index that exists. After that the cursor stays on
        the row at this index.
        """
        self._point(index)
        self._home = self.cursor
        self._home_value = self._placed.get(self.cursor) if self.cursor is not None else None

    def follow(self, key: Key) -> bool:
        """Move the cursor to this row. Return False if the row is not shown."""
        index = self.index_of(key)
        if index is not None:
            self.move_to(index)
        return index is not None

    def toggle(self, key: Key) -> None:
        self.marks ^= {key}

    def mark_between(self, one: Key, other: Key) -> None:
        """Mark all shown rows between the rows `one` and `other`, including these two rows. Do nothing if one
        of the two is not shown.
        """
        ends = (self.index_of(one), self.index_of(other))
        if ends[0] is not None and ends[1] is not None:
            low, high = sorted((ends[0], ends[1]))
            self.marks.update(self.key_at(at) for at in range(low, high + 1))

    def mark_shown(self) -> None:
        """Mark all shown rows. If all of them are marked already, remove their marks."""
        shown = self._placed.keys()
        self.marks = self.marks - shown if shown <= self.marks else self.marks | shown

    def chosen(self) -> list[Row]:
        """Return the rows to which an action applies: the marked rows. If no row is marked, return the row
        under the cursor.
        """
        keys = self.marks or ({self.cursor} if self.cursor is not None else set())
        return [self.rows[key] for key in sorted(keys) if key in self.rows]

    def _haystack(self, row: Row) -> str:
        key = self._key(row)
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = self._text_of(row)
        return text

    def _remember(self, row: Row) -> None:
        key = self._key(row)
        self.rows[key] = row
        self._texts.pop(key, None)

    def _place(self, row: Row) -> None:
        key = self._key(row)
        if key in self.hidden or not self.filter(row):
            self._unplace(key)
            return
        value = self.sorts[self.sort](row)
        if self._placed.get(key) != value or key not in self._placed:
            self._unplace(key)
            self._placed[key] = value
            insort(self._order, (value, key))

    def _unplace(self, key: Key) -> None:
        if key in self._placed:
            del self._order[bisect_left(self._order, (self._placed.pop(key), key))]

    def _rebuild(self) -> None:
        value, shown = self.sorts[self.sort], self.filter
        self._placed = {
            key: value(row) for key, row in self.rows.items() if key not in self.hidden and shown(row)
        }
        self._order = sorted((value, key) for key, value in self._placed.items())

    def _restore_cursor(self) -> None:
        """Put the cursor back on its row after a change of the list. If the row exists but is not shown, put
        the cursor at the index that the row would have. If the row no longer exists, the cursor keeps its
        index.
        """
        home = self._home
        if home is None:
            self._point(0)
        elif home not in self.rows:
            self.move_to(self._index)
        elif (index := self.index_of(home)) is not None:
            self._point(index)
            self._home_value = self._placed[home]
        else:
            # Search with the sort key that the row had when it was last shown. The present sort key may
            # differ, for example because the job has ended since then.
            if self._home_value is None:
                self._home_value = self.sorts[self.sort](self.rows[home])
            at = bisect_left(self._order, (self._home_value, home))
            self._point(len(self) - at if self.reverse else at)

    def _point(self, index: int) -> None:
        self._index = max(0, min(index, len(self) - 1))
        self.cursor = self.key_at(self._index) if self._order else None
