"""A scrolling widget that shows given lines of text."""

from __future__ import annotations

from textual.strip import Strip

from tui.app_interface import app_of
from tui.look.styled_lines import Piece
from tui.widgets.scrolling_pane import Pane


class LinesPane(Pane):
    def __init__(self, lines: list[list[Piece]] | None = None) -> None:
        super().__init__()
        self._lines = lines or []

    @property
    def total(self) -> int:
        return len(self._lines)

    def show(self, lines: list[list[Piece]], *, follow: bool = False) -> None:
        """Show these lines. With `follow`, if the last line is visible now, scroll so that the new last line
        is visible.
        """
        at_end = follow and self.at_end
        self._lines = lines
        self.scroll_lines(len(lines) if at_end else self.top)
        self.refresh_changed()

    def paint_line(self, index: int, width: int) -> Strip:
        return app_of(self).paint.strip(self._lines[index], width)
