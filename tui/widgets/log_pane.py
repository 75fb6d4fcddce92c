"""A widget that shows the lines of a log. It follows new lines or shows a page of the log, wraps or cuts long
lines, filters lines with a regular expression, and emphasises the text of a search.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable

from textual.strip import Strip

from tui.app_interface import app_of
from tui.data.log_page import LogPage
from tui.data.log_tail import KEPT_LINES, Piece
from tui.look.styled_lines import span
from tui.widgets.scrolling_pane import Pane

_TROUBLE = re.compile(
    r"error|exception|traceback|fail|fatal|panic|out of memory|\boom\b|\bnan\b", re.IGNORECASE
)


class LogPane(Pane):
    """Shows the lines at the end of a log, which a thread (LogTail) reads, or a page from another place of
    the log. `on_edge` is called with -1 or 1 if the user scrolls beyond the first or the last line of a page.
    """

    def __init__(self, on_edge: Callable[[int], None]) -> None:
        super().__init__()
        self._on_edge = on_edge
        self.shown_page: LogPage | None = None
        """The shown page; None while the end of the log is shown."""
        self.from_begin = False
        """True if the loaded lines begin at the beginning of the log."""
        self._marked: int | None = None
        """The index of the line with the match of the last search; None without a match."""
        self.searched = ""
        self._lines: list[str] = []
        self._open_end = ""
        self._shown: list[int] | None = None
        self._starts: list[int] | None = None
        self._found: re.Pattern[str] | None = None
        self.following = True
        self.wrapping = False

    # -- lines of the log ---------------------------------------------------------------

    def show_page(self, page: LogPage, place: int, *, mark: bool) -> None:
        """Show a page of the log, with the line that contains the byte `place` near the top. With `mark`,
        emphasise this line.
        """
        self.shown_page, self.following, self._found = page, False, None
        self._lines, self._open_end = list(page.lines), ""
        line = page.line_at(place)
        self._marked = line if mark else None
        self._arrange()
        top = self._starts[line] if self._starts and line < len(self._starts) else line
        self.scroll_lines(top - self.page // 3 if mark else top)
        self.refresh()

    def place_of(self, beyond_match: int) -> int:
        """Return the byte of the log at which a search begins. While the end of the log is shown, return -1,
        which means the end of the log. While a page is shown, a search begins at the line of the last match,
        or at the first visible line if there is no match. With `beyond_match` = 1 (to find the next match),
        it begins one line below.
        """
        page = self.shown_page
        if page is None or not page.offsets:
            return -1
        line = (self._line_at(self.top) if self._marked is None else self._marked) + beyond_match
        return page.offsets[line] if line < len(page.offsets) else page.end

    def step(self, by: int) -> None:
        page, top = self.shown_page, self.top
        super().step(by)
        if page is not None and self.top == top and by:
            self._on_edge(1 if by > 0 else -1)

    def add(self, piece: Piece) -> None:
        if piece.fresh:
            self._lines, self.top = [], 0
            self.shown_page = self._marked = None
        self.from_begin = piece.from_begin
        self._lines.extend(piece.lines)
        if (over := len(self._lines) - KEPT_LINES) > 0:
            self.from_begin = False
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

    def last_lines(self, count: int) -> list[str]:
        """Return the last `count` loaded lines, without the filter."""
        return self._lines[-count:] if count > 0 else []

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

    # -- display of the lines -----------------------------------------------------------

    @property
    def _count(self) -> int:
        return len(self._shown) if self._shown is not None else len(self._lines) + bool(self._open_end)

    def _text(self, place: int) -> str:
        index = self._shown[place] if self._shown is not None else place
        return self._lines[index] if index < len(self._lines) else self._open_end

    @property
    def total(self) -> int:
        """Return the number of screen lines for all loaded lines that pass the filter. A wrapped line has
        several screen lines.
        """
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
        self.following = self.at_end and self.shown_page is None

    def on_resize(self) -> None:
        self._arrange()

    def paint_line(self, index: int, width: int) -> Strip:
        place = self._line_at(index)
        text = self._text(place)
        part = "bad" if _TROUBLE.search(text) else "text"
        if self._starts:
            offset = (index - self._starts[place]) * max(1, self.size.width - 2)
            text = text[offset : offset + self.size.width - 2]
        ground = "cursor" if self._marked is not None and place == self._marked and not self._shown else ""
        pieces = [(" ", "text"), *_emphasised(text, part, self.searched)]
        return app_of(self).paint.strip(pieces, width, ground)


def _emphasised(text: str, style: str, searched: str) -> list[tuple[str, str]]:
    """Return a line in which each match of the search has another style. A searched text without capital
    letters also matches capital letters, as in the search of the whole log by the agent.
    """
    if not searched:
        return [(text, style)]
    # Convert only ASCII letters to lower case, because other letters may change their length.
    folds = searched.encode() == searched.encode().lower()
    body = text.encode().lower().decode() if folds else text
    pieces: list[tuple[str, str]] = []
    at = 0
    while (found := body.find(searched, at)) >= 0:
        pieces += [(text[at:found], style), (text[found : found + len(searched)], "mark")]
        at = found + len(searched)
    return [*pieces, (text[at:], style)]
