"""Base class of the single lines above and below a view."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.strip import Strip
from textual.widget import Widget

from tui.app_interface import app_of
from tui.look.styled_lines import Piece


class FrameLine(Widget):
    ALLOW_SELECT = False

    def pieces(self, width: int) -> Sequence[Piece]:
        """Return the texts of the line and their styles, for this width."""
        raise NotImplementedError

    def refresh_changed(self) -> None:
        """Repaint the line if its text has changed."""
        if tuple(self.pieces(self.size.width)) != self._painted:
            self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        pieces = tuple(self.pieces(width)) if y == 0 else ()
        if y == 0:
            self._painted = pieces
        return app_of(self).paint.strip(pieces, width).apply_style(self.rich_style)

    def on_click(self, event: events.Click) -> None:
        """Carry out the action whose words were clicked."""
        for begin, end, action in self.targets:
            if begin <= event.x < end:
                app_of(self).act(action)

    targets: Sequence[tuple[int, int, str]] = ()
    """The clickable words of the line, each as (first cell, cell after the last, name of the action). A
    subclass sets this field in `pieces`.
    """

    _painted: tuple[Piece, ...] = ()
