"""Base class of the lines above and below a view."""

from __future__ import annotations

from collections.abc import Sequence

from textual.strip import Strip
from textual.widget import Widget

from tui.app_interface import app_of
from tui.look.paint import Piece


class FrameLine(Widget):
    """A widget one line high, painted from pieces."""

    ALLOW_SELECT = False

    def pieces(self, width: int) -> Sequence[Piece]:
        """The texts and styles of the line at this width."""
        raise NotImplementedError

    def refresh_changed(self) -> None:
        """Repaint if the line has changed."""
        if tuple(self.pieces(self.size.width)) != self._painted:
            self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        pieces = tuple(self.pieces(width)) if y == 0 else ()
        if y == 0:
            self._painted = pieces
        return app_of(self).paint.strip(pieces, width).apply_style(self.rich_style)

    _painted: tuple[Piece, ...] = ()
