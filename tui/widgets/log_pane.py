"""A widget that shows the lines of a log. It follows new lines, wraps or cuts long lines, and filters lines
with a regular expression.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from textual.strip import Strip

from tui.app_interface import app_of
from tui.data.log_tail import KEPT_LINES, Piece
from tui.look.paint import span
from tui.widgets.pane import Pane

_TROUBLE = re.compile(
    r"error|exception|traceback|fail|fatal|panic|out of memory|\boom\b|\bnan\b", re.IGNORECASE
)


class LogPane(Pane):
    """Shows the lines of a log, which a thread (LogTail) reads."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] = []
        self._open_end = ""
        self._shown: list[int] | None = None
        self._starts: list[int] | None = None
        self._found: re.Pattern[str] | None = None
        self.following = True
        self.wrapping = False

    # -- lines --------------------------------------------------------------------------

    def add(self, piece: Piece) -> None:
        if piece.fresh:
            self._lines, self.top = [], 0
        self._lines.extend(piece.lines)
        if (over := len(self._lines) - KEPT_LINES) > 0:
            del self._lines[:over]
            self.top = max(0, self.top - over)
        self._open_end = piece.open_end
        self._arrange()

    def filter(self, pattern: str) -> str:
        """Show only lines that match this regular expression. Return the error in the expression; empty for a
        valid expression.
        """
        try:
            self._found = re.compile(pattern, re.IGNORECASE) if pattern else None
        except re.error as error:
            return f"not a valid regex yet: {error}"
        self._arrange()
        return ""

    @property
    def filter_text(self) -> str:
        return self._found.pattern if self._found else ""

    @property
    def count(self) -> int:
        return len(self._lines)

    def next_trouble(self) -> bool:
        """Scroll to the next line that contains an error. Return False if no line below the first visible
        line contains an error.
        """
        for place in range(self._line_at(self.top) + 1, self._count):
            if _TROUBLE.search(self._text(place)):
                self.following = False
                self.top = max(0, min(self._starts[place] if self._starts else place, self.total - 1))
                self.refresh()
                return True
        return False

    def toggle_wrap(self) -> None:
        """Switch between wrapping long lines and cutting long lines at the right edge."""
        place = self._line_at(self.top)
        self.wrapping = not self.wrapping
        self._arrange()
        self.scroll_lines(self._starts[place] if self._starts and place < len(self._starts) else place)

    # -- display ------------------------------------------------------------------------

    @property
    def _count(self) -> int:
        return len(self._shown) if self._shown is not None else len(self._lines) + bool(self._open_end)

    def _text(self, place: int) -> str:
        index = self._shown[place] if self._shown is not None else place
        return self._lines[index] if index < len(self._lines) else self._open_end

    @property
    def total(self) -> int:
        """Return the height of the whole log in screen lines. A wrapped line has several screen lines."""
        return self._starts[-1] if self._starts else self._count

    def _arrange(self) -> None:
        found = self._found
        self._shown = [at for at, line in enumerate(self._lines) if found.search(line)] if found else None
        self._starts = None
        if self.wrapping:
            width = max(1, self.size.width - 2)
            starts = [0]
            for place in range(self._count):
                starts.append(starts[-1] + max(1, -(-span(self._text(place)) // width)))
            self._starts = starts
        if self.following:
            self.top = max(0, self.total - self.page)
        else:
            self.scroll_lines(self.top)
        self.refresh()

    def _line_at(self, index: int) -> int:
        return bisect_right(self._starts, index) - 1 if self._starts else index

    def scroll_lines(self, top: int) -> None:
        """Make `top` the first visible line. New lines are followed only while the last line is visible."""
        super().scroll_lines(top)
        self.following = self.at_end

    def on_resize(self) -> None:
        self._arrange()

    def paint_line(self, index: int, width: int) -> Strip:
        place = self._line_at(index)
        text = self._text(place)
        part = "bad" if _TROUBLE.search(text) else "text"
        if self._starts:
            offset = (index - self._starts[place]) * max(1, self.size.width - 2)
            text = text[offset : offset + self.size.width - 2]
        return app_of(self).paint.strip([(" ", "text"), (text, part)], width)
