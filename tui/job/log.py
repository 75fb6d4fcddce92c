"""Loads the log of a job into its pane: follows the end, fetches other parts, and searches the whole log."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.widget import Widget

from tui.app_interface import app_of
from tui.data import log_page
from tui.data.log_page import FoundPage, LogPage
from tui.data.log_tail import LogTail
from tui.data.request_workers import Failure, failure_text
from tui.look.styled_lines import Piece
from tui.widgets.log_pane import LogPane
from wire.text import counted, memory, printable


class JobLog:
    """The log of one job.

    1. At first a thread (LogTail) follows the end of the log.
    2. If the user goes to the first line or to another match, or scrolls beyond a page, fetch another part of
       the log, of about 1 MiB (a page). While a page is shown, the end of the log is not followed.
    3. If the user goes to the last line, or presses Escape or the key to follow, show and follow the end of
       the log again.
    """

    def __init__(self, view: Widget, job: int, pane: LogPane, changed: Callable[[], None]) -> None:
        self._view, self._job, self._pane, self._changed = view, job, pane, changed
        self.stream = "stdout"
        self._tail: LogTail | None = None
        self._note, self._over = "", False
        self._fetching = False
        """True while a request for a part of the log, or a search, is under way."""

    @property
    def has_ended(self) -> bool:
        """Return True if no further lines are expected: the log has ended, or the thread that follows it has
        not been started.
        """
        return self._over or (self._tail is None and self._pane.shown_page is None)

    def note(self) -> Sequence[Piece]:
        """Return the state of the log: the stream, the number of lines or the place in the log, and whether
        the view follows new lines.
        """
        pane, page = self._pane, self._pane.shown_page
        if page is None:
            details = counted(pane.count, "line")
        else:
            details = "from the beginning" if not page.begin else f"from {memory(page.begin >> 20)}"
        details += "  following" if pane.following and not self._over else ""
        details += "  wrapped" if pane.wrapping else ""
        details += f"  &{printable(pane.filter_text, 20)}" if pane.filter_text else ""
        details += f"  /{printable(pane.searched, 20)}" if pane.searched else ""
        note = (f"  {self._note}" if self._note else "", "warn")
        return [(self.stream, "sorted"), (f"  {details}", "muted"), note]

    # -- following the end of the log -----------------------------------------------------

    def follow(self) -> None:
        """Load the end of the log, and follow new lines."""
        self.close()
        app = app_of(self._view)
        tail = LogTail(app.connect, self._job, self.stream, lambda: app.deliver(lambda: self._arrived(tail)))
        self._tail, self._over, self._note = tail, False, ""
        tail.start()

    def close(self) -> None:
        if self._tail is not None:
            self._tail.stop()

    def switch_stream(self) -> None:
        """Show stderr instead of stdout, or stdout instead of stderr."""
        self.stream = "stderr" if self.stream == "stdout" else "stdout"
        self._pane.following = True
        self.follow()
        self._changed()

    def to_end(self) -> bool:
        """Show the end of the log instead of a page. Return False if the end is already shown."""
        if self._pane.shown_page is None:
            return False
        self._pane.following = True
        self.follow()
        self._changed()
        return True

    def undo(self) -> bool:
        """End the search, and show the end of the log. Return False if there was no search and the end is
        already shown.
        """
        searched, self._pane.searched = self._pane.searched, ""
        self._pane.refresh()
        self._changed()
        return self.to_end() or bool(searched)

    def _arrived(self, tail: LogTail) -> None:
        if tail is not self._tail or not self._view.is_attached:
            return
        piece = tail.take()
        self._pane.add(piece)
        self._note, self._over = printable(piece.note, 80), piece.over
        self._changed()

    # -- pages from other places of the log -----------------------------------------------

    def fetch_begin(self) -> bool:
        """Fetch the beginning of the log. Return False if the beginning is already loaded."""
        pane = self._pane
        loaded = pane.from_begin if pane.shown_page is None else pane.shown_page.begin == 0
        if not loaded:
            self._fetch(0)
        return not loaded

    def turn_page(self, direction: int) -> None:
        """Fetch the part of the log before (`direction` = -1) or after (1) the shown page, if
        there is one.
        """
        page = self._pane.shown_page
        if page is None:
            return
        if direction < 0 and page.begin > 0:
            self._fetch(page.begin)
        elif direction > 0 and not page.over:
            self._fetch(page.end)
        elif direction > 0:
            app_of(self._view).show_message("this is the end of the log; G follows new lines", "muted")

    def _fetch(self, place: int) -> None:
        if self._fetching:
            return
        self._fetching = True
        app, stream = app_of(self._view), self.stream

        def arrived(page: LogPage | Failure) -> None:
            self._fetching = False
            if not self._view.is_attached:
                return
            if isinstance(page, LogPage):
                self._show_page(page, place, mark=False)
            else:
                app.show_message(failure_text(page), "bad")

        app.requests.ask(lambda _: log_page.fetch_page(app.connect, self._job, stream, place), arrived)

    def _show_page(self, page: LogPage, place: int, *, mark: bool) -> None:
        """Stop following the log, and show a page with the byte `place` near the top. With `mark`, emphasise
        the line that contains this byte.
        """
        self.close()
        self._tail, self._note = None, ""
        self._pane.show_page(page, place, mark=mark)
        self._changed()

    # -- search in the whole log ----------------------------------------------------------

    def find(self, text: str) -> None:
        """Search for a text in the whole log. If a page is shown, search downwards from its first visible
        line. If the end of the log is shown, search upwards from the end.
        """
        self._pane.searched = text
        self._pane.refresh()
        self._changed()
        at_end = self._pane.shown_page is None
        if text:
            self._search(self._pane.place_of(0), back=at_end)

    def next_match(self) -> None:
        """Show the next match of the search. If the end of the log is shown, show the last match."""
        self._search(self._pane.place_of(1), back=self._pane.shown_page is None)

    def match_before(self) -> None:
        """Show the previous match of the search."""
        self._search(self._pane.place_of(0), back=True)

    def _search(self, place: int, *, back: bool) -> None:
        app, stream, text = app_of(self._view), self.stream, self._pane.searched
        if not text:
            app.show_message("nothing was searched yet: / searches", "warn")
        if not text or self._fetching:
            return
        self._fetching = True
        app.show_message(f"searching {text} in the whole log…", "muted")

        def arrived(found: FoundPage | Failure) -> None:
            self._fetching = False
            if not self._view.is_attached:
                return
            if not isinstance(found, FoundPage):
                app.show_message(failure_text(found), "bad")
            elif found.place is None or found.page is None:
                app.show_message(f"the log does not contain {text}", "warn")
            else:
                self._show_page(found.page, found.place, mark=True)
                end = "end" if back else "beginning"
                where = f"; the search continued at the {end} of the log" if found.wrapped else ""
                app.show_message(f"found at byte {found.place:,}{where}", "good")

        app.requests.ask(
            lambda _: log_page.search(app.connect, self._job, stream, text, place, back), arrived
        )
