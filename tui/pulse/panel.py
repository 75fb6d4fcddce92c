"""The parts of the view Pulse: rows of text, objects that Enter on a row opens, and panels side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, Literal

from tui.look.styled_lines import Piece, heading


@dataclass(frozen=True)
class Jump:
    """The object that Enter opens: a job by its id, a node by its name, a view by its name, or the queue with
    a filter.
    """

    kind: Literal["job", "node", "view", "filter"]
    name: int | str


@dataclass(frozen=True)
class PanelRow:
    """One row of a panel. The cursor stops at rows with a jump."""

    pieces: Sequence[Piece] = ()
    jump: Jump | None = None


Panel = Sequence[PanelRow]
Block = tuple[PanelRow, int]
"""A row and its width in terminal cells."""
BETWEEN: Final = 1
"""The number of empty cells between two panels."""


def title(pieces: Sequence[Piece], width: int, jump: Jump | None = None) -> PanelRow:
    """Return the first row of a panel: a title in a horizontal line."""
    return PanelRow(heading(pieces, width), jump)


def side_by_side(panels: Sequence[tuple[Panel, int]], height: int | None = None) -> list[list[Block]]:
    """Return the lines of the screen for panels beside one another. Each panel has a width in terminal cells.
    All panels get `height` lines. Without `height`, all panels get as many lines as the highest panel.
    """
    rows = list(zip_longest(*(panel for panel, _ in panels), fillvalue=PanelRow()))
    rows = rows[:height]
    rows += [tuple(PanelRow() for _ in panels)] * ((height or 0) - len(rows))
    return [[(row, width) for row, (_, width) in zip(line, panels, strict=True)] for line in rows]
