"""A widget that shows lines of text, for example above a log or below a list."""

from __future__ import annotations

from itertools import zip_longest

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tui.app_interface import app_of
from tui.look.styled_lines import Piece


def refresh_lines(widget: Widget, before: list[list[Piece]], after: list[list[Piece]]) -> None:
    """Repaint the lines of a widget whose texts have changed."""
    changed = [
        Region(0, y, widget.size.width, 1)
        for y, (old, new) in enumerate(zip_longest(before, after))
        if old != new and y < widget.size.height
    ]
    if changed:
        widget.refresh(*changed)


class Facts(Widget):
    """Shows lines of text. Its height is the number of lines."""

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[list[Piece]] = []

    def update(self, lines: list[list[Piece]]) -> None:
        if len(lines) != len(self.lines):
            self.styles.height = len(lines)
        before, self.lines = self.lines, lines
        refresh_lines(self, before, lines)

    def render_line(self, y: int) -> Strip:
        pieces = self.lines[y] if y < len(self.lines) else []
        return app_of(self).paint.strip(pieces, self.size.width).apply_style(self.rich_style)
