"""One line of the frame."""

from __future__ import annotations

from collections.abc import Sequence

from textual.strip import Strip
from textual.widget import Widget

from tui.paint import Piece
from tui.stage import stage


class Line(Widget):
    """A widget one line high, painted from pieces."""

    ALLOW_SELECT = False

    def pieces(self, width: int) -> Sequence[Piece]:
        """What stands on the line at this width."""
        raise NotImplementedError

    def render_line(self, y: int) -> Strip:
        """Textual asks for the line."""
        width = self.size.width
        return (
            stage(self).paint.strip(self.pieces(width) if y == 0 else (), width).apply_style(self.rich_style)
        )
