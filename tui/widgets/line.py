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

    def refresh_changed(self) -> None:
        """Paint anew if it would look different."""
        if tuple(self.pieces(self.size.width)) != self._painted:
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Textual asks for the line."""
        width = self.size.width
        pieces = tuple(self.pieces(width)) if y == 0 else ()
        if y == 0:
            self._painted = pieces
        return stage(self).paint.strip(pieces, width).apply_style(self.rich_style)

    _painted: tuple[Piece, ...] = ()
