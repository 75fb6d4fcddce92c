"""Lines of text that stay where they are: above a log, below a list, in a form."""

from __future__ import annotations

from textual.strip import Strip
from textual.widget import Widget

from tui.paint import Piece
from tui.stage import stage


class Facts(Widget):
    """As high as it has lines."""

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[list[Piece]] = []

    def update(self, lines: list[list[Piece]]) -> None:
        """Other facts."""
        if len(lines) != len(self._lines):
            self.styles.height = len(lines)
        self._lines = lines
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Textual asks for one line."""
        pieces = self._lines[y] if y < len(self._lines) else []
        return stage(self).paint.strip(pieces, self.size.width).apply_style(self.rich_style)
