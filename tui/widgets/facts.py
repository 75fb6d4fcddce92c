"""A widget that shows lines of text, for example above a log or below a list."""

from __future__ import annotations

from textual.strip import Strip
from textual.widget import Widget

from tui.app_interface import app_of
from tui.look.styled_lines import Piece


class Facts(Widget):
    """Shows lines of text. Its height is the number of lines."""

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[list[Piece]] = []

    def update(self, lines: list[list[Piece]]) -> None:
        if len(lines) != len(self._lines):
            self.styles.height = len(lines)
        self._lines = lines
        self.refresh()

    def render_line(self, y: int) -> Strip:
        pieces = self._lines[y] if y < len(self._lines) else []
        return app_of(self).paint.strip(pieces, self.size.width).apply_style(self.rich_style)
