"""Builds the lines of the screen from texts and the names of their styles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tui.look import glyphs

Piece = tuple[str, str]
"""A text, and the name of its style in the theme."""


class Paint:
    """Builds lines for Textual (strips) in the styles of one theme."""

    def __init__(self, styles: Mapping[str, Style]) -> None:
        self._styles = styles
        self._on: dict[tuple[str, str], Style] = {}

    def style(self, name: str, ground: str = "") -> Style:
        """Return the style `name` of the theme. If `ground` names another style, such as the style of the
        cursor line, use the background colour of `ground`.
        """
        made = self._on.get((name, ground))
        if made is None:
            over, under = self._styles[name], self._styles[ground] if ground else Style.null()
            # If the style `ground` swaps text and background colours, use one colour for the whole line,
            # because each text colour would otherwise become the background of its own text.
            made = Style(bold=over.bold) + under if under.reverse else over + under
            self._on[name, ground] = made
        return made

    def strip(self, pieces: Iterable[Piece], width: int, ground: str = "") -> Strip:
        """Return one line, cut or padded to `width` cells. `ground` names the style of the background, as in
        `style`.
        """
        segments, left = [], width
        for text, style in pieces:
            size = span(text)
            if size > left:
                text, size = fit(text, left), left
            if text:
                segments.append(Segment(text, self.style(style, ground)))
            left -= size
        if left:
            segments.append(Segment(" " * left, self.style("text", ground)))
        return Strip(segments, width)


def span(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def fit(text: str, width: int, right: bool = False) -> str:
    """Return the text cut or padded to exactly `width` cells. If `right` is true, the text is at the right
    end of these cells. A text that was cut ends with an ellipsis.
    """
    size = span(text)
    if size > width:
        # Add no ellipsis to a text of spaces or line symbols, because its end carries no information.
        if not text.strip(" ─"):
            return text[:width]
        return set_cell_size(text, width - 1) + "…" if width > 0 else ""
    return text.rjust(width - size + len(text)) if right else text + " " * (width - size)


def bar(fraction: float, width: int, style: str = "bar") -> list[Piece]:
    """Return a horizontal bar of `width` cells. From the left, `fraction` (0 to 1) of the bar is filled in
    the style `style`.
    """
    halves = round(max(0.0, min(1.0, fraction)) * width * 2)
    whole, half = divmod(halves, 2)
    return [("━" * whole + "╸" * half, style), ("─" * (width - whole - half), "track")]


def share_bar(used: float, fair: float | None, width: int) -> list[Piece]:
    """Return a bar of `width` cells whose filled part is `used`, from 0 to 1. A line across the bar shows the
    fair share `fair`, also from 0 to 1; None gives a bar without this line. The filled part to the right of
    the line is amber.
    """
    if fair is None:
        return bar(used, width)
    mark = max(0, min(width - 1, round(fair * width)))
    filled = max(0, min(width, round(used * width)))
    within, over = min(filled, mark), max(0, filled - mark - 1)
    rest = width - mark - 1 - over
    return [
        ("━" * within, "running"),
        ("─" * (mark - within), "track"),
        ("┃", "strong"),
        ("━" * over, "warn"),
        ("─" * rest, "track"),
    ]


def level(percent: float) -> str:
    """Return a symbol, one cell wide, whose height shows a percentage."""
    return glyphs.LEVELS[max(0, min(7, int(percent / 100 * 7.99)))]


def length(pieces: Sequence[Piece]) -> int:
    return sum(span(text) for text, _ in pieces)


def cut(pieces: Iterable[Piece], width: int) -> list[Piece]:
    """Return the texts cut or padded to exactly `width` cells."""
    shown: list[Piece] = []
    left = width
    for text, style in pieces:
        if left <= 0:
            break
        text = fit(text, left) if span(text) > left else text
        shown.append((text, style))
        left -= span(text)
    return [*shown, (" " * left, "text")] if left else shown


def heading(pieces: Sequence[Piece], width: int) -> list[Piece]:
    """Return the first line of a panel: a title in a horizontal line."""
    return [("╶ ", "line"), *pieces, (" " + "─" * max(0, width - length(pieces) - 5) + "╴", "line")]


def beside(panels: Sequence[tuple[Sequence[Sequence[Piece]], int]]) -> list[list[Piece]]:
    """Return the lines of panels that are shown side by side. Each panel has its lines and its width in
    terminal cells.
    """
    rows = max((len(lines) for lines, _ in panels), default=0)
    return [
        [piece for lines, width in panels for piece in cut(lines[row] if row < len(lines) else (), width)]
        for row in range(rows)
    ]


def both_ends(left: Sequence[Piece], right: Sequence[Piece], width: int) -> list[Piece]:
    """Return one line with texts at the left end and at the right end. If the line is too narrow, the left
    texts are cut.
    """
    room = width - length(right)
    shown: list[Piece] = []
    for text, style in left:
        size = span(text)
        if size > room:
            shown.append((fit(text, max(0, room)), style))
            room = 0
            break
        shown.append((text, style))
        room -= size
    return [*shown, (" " * max(0, room), "text"), *right]
