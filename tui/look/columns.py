"""Chooses the columns of a list that fit into the width of the screen, and computes the widths of these
columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tui.look.styled_lines import Piece

Row = TypeVar("Row")

GUTTER = 2
"""The number of terminal cells at the left edge for the symbols of the cursor and of a marked row."""


@dataclass(frozen=True)
class ListColumn(Generic[Row]):
    """One column of a list. If the screen is too narrow, the columns with the highest `rank` are left out
    first.

    `narrow` is the smallest width of the column, and 0 if the column has only its full `width`. Columns with
    a `narrow` width are chosen first. Cells that no column needs are divided among the columns in proportion
    to `grow`, up to `most` cells for a column.
    """

    name: str
    title: str
    rank: int
    width: int
    cell: Callable[[Row], Sequence[Piece]]
    narrow: int = 0
    grow: int = 0
    most: int = 60
    right: bool = False


def fit_columns(
    columns: Sequence[ListColumn[Row]], width: int, gap: int
) -> list[tuple[ListColumn[Row], int]]:
    """Return the columns that fit into `width` cells, and their widths, from left to right. Two columns are
    separated by `gap` empty cells.

    1. Columns with a `narrow` width get this width, in the order of their ranks.
    2. The same columns get their full width, in the order of their ranks, as long as cells are free.
    3. Columns without a `narrow` width get their full width, in the order of their ranks, as long as cells
       are free.
    4. Columns with `grow` get the cells that no column needs, in proportion to `grow`.
    """
    ranked = sorted(columns, key=lambda column: column.rank)
    widths: dict[str, int] = {}
    room = _take([column for column in ranked if column.narrow], widths, width - GUTTER, gap)
    for column in ranked:
        more = min(room, column.width - widths.get(column.name, column.width))
        if more > 0:
            widths[column.name] += more
            room -= more
    if room > 0:
        room = _take([column for column in ranked if not column.narrow], widths, room, gap)
    _grow([column for column in ranked if column.grow and column.name in widths], widths, room)
    return [(column, widths[column.name]) for column in columns if column.name in widths]


def _take(columns: Sequence[ListColumn[Row]], widths: dict[str, int], room: int, gap: int) -> int:
    for column in columns:
        needed = (column.narrow or column.width) + (gap if widths else 0)
        if needed > room:
            break
        widths[column.name] = column.narrow or column.width
        room -= needed
    return room


def _grow(columns: list[ListColumn[Row]], widths: dict[str, int], room: int) -> None:
    while room > 0 and columns:
        share = max(1, room // sum(column.grow for column in columns))
        for column in columns:
            more = min(share * column.grow, column.most - widths[column.name], room)
            widths[column.name] += more
            room -= more
        columns = [column for column in columns if widths[column.name] < column.most]
