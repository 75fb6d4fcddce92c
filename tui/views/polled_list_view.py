"""Base class of views of lists that are not in the controller's event stream, such as quotas. While such a
list is shown, it is requested again at intervals. Details of the row under the cursor are below the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from textual.app import ComposeResult

from tui.actions import BY_NAME, shown_key
from tui.app_interface import app_of
from tui.data.cluster_feed import Changes
from tui.data.lists.listing import Listing
from tui.data.request_workers import Failure, failure_text
from tui.look.styled_lines import Piece
from tui.panels.graphs import graph_lines
from tui.views.list_view import ListView, Row
from tui.widgets.facts import Facts
from wire.http.client import Client, Refused, Unreachable
from wire.text import printable

Answer = TypeVar("Answer")


class PolledListView(ListView[str, Row], Generic[Row, Answer]):
    """Shows a list. The list is requested every REASK_S seconds, and at once after an event of a kind in
    `CHANGED_BY`.
    """

    CHANGED_BY: ClassVar[frozenset[str]] = frozenset()
    """After an event of one of these kinds, the list is requested at once."""
    REASK_S: ClassVar[int] = 5

    def __init__(self, listing: Listing[str, Row]) -> None:
        super().__init__(listing)
        self.facts = Facts()
        self._asking = self._again = False
        self._answered_once = False
        self._wrong = ""
        self._ticks = 0

    # -- methods that each view defines --------------------------------------------------------

    def question(self, client: Client) -> Answer:
        """Send the request to the controller and return its answer. This runs in a worker thread."""
        raise NotImplementedError

    def rows_of(self, answer: Answer) -> Sequence[Row]:
        raise NotImplementedError

    def nothing(self) -> Sequence[Piece]:
        """Return the text that is shown if the answer has no rows: why there are none, and what the user can
        do.
        """
        raise NotImplementedError

    def details(self, row: Row) -> list[list[Piece]]:
        """Return lines with the details of a row."""
        raise NotImplementedError

    def more(self, width: int, height: int) -> list[list[Piece]]:  # noqa: ARG002 - most lists have no more
        """Return at most `height` lines for the free space below the details. The lines come from the model
        or from the last answers, because this is called once a second and after each key.
        """
        return []

    # -- requests for the list ------------------------------------------------------------

    def ask(self) -> None:
        """Request the list now. If a request is under way, request the list again after its answer."""
        app = app_of(self)
        if self._asking or app.model.connection.state == "lost":
            self._again = self._asking
            return
        self._asking, self._again = True, False
        app.requests.ask(self.question, self._answered)

    def _answered(self, answer: Answer | Failure) -> None:
        if not self.is_attached:
            return
        self._asking = False
        if isinstance(answer, (Refused, Unreachable)):
            self._wrong = failure_text(answer)
        else:
            self._wrong, self._answered_once = "", True
            self.listing.replace(self.rows_of(answer))
        self.table.sync()
        self.moved()
        if self._again:
            self.ask()

    def changed(self, changes: Changes) -> None:
        """Request the list again if it may have changed: after an event of a kind in `CHANGED_BY`, or after
        the whole state of the cluster was loaded again.
        """
        if changes.fresh or any(event.kind in self.CHANGED_BY for event in changes.events):
            self.ask()

    def tick(self) -> None:
        """Request the list again if REASK_S seconds have passed. Called once a second."""
        self._ticks += 1
        if self._ticks % self.REASK_S == 0:
            self.ask()
        self.table.refresh_changed()
        self._show_details()

    # -- display of the list ---------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield self.table
        yield self.facts

    @property
    def here(self) -> Row | None:
        """Return the row under the cursor; None if the list is empty."""
        return self.listing.rows.get(self.listing.cursor) if self.listing.cursor is not None else None

    def empty(self) -> Sequence[Piece]:
        """Return the text for a list without shown rows. The text gives the reason: the filter hides all
        rows, the last request failed, no answer has arrived yet, or no rows exist.
        """
        if self.listing.rows:
            return [("no row matches the filter; esc removes it", "muted")]
        if self._wrong:
            return [(printable(self._wrong, 300), "warn")]
        return self.nothing() if self._answered_once else [("loading…", "faint")]

    def status(self) -> Sequence[Piece]:
        """Return the text of the status line: the error of the last request, or, if the request succeeded, an
        explanation of the symbols in the list.
        """
        return [(printable(self._wrong, 300), "warn")] if self._wrong else self.legend()

    def hint(self, name: str, does: str) -> Sequence[Piece]:
        """Return the end of the text for an empty list, such as "; N sets one". N is the key of the action
        `name`, and "sets one" is the text `does`. In read-only mode, return an empty text.
        """
        if app_of(self).read_only:
            return ()
        return [("; ", "muted"), (shown_key(BY_NAME[name].keys[0]), "key"), (f" {does}", "muted")]

    def legend(self) -> Sequence[Piece]:
        return ()

    def moved(self) -> None:
        super().moved()
        self._show_details()

    def on_resize(self) -> None:
        self._show_details()

    def _show_details(self) -> None:
        """Show the details of the row under the cursor, on at most half of the lines of the view. If the list
        and the details leave lines free, show more about the list there, and then the graphs of the cluster.
        """
        row = self.here
        lines: list[list[Piece]] = [] if row is None else [[("─" * 400, "line")], *self.details(row)]
        lines = lines[: max(0, self.size.height // 2)]
        free = self.size.height - self.table.HEAD - max(2, len(self.listing)) - len(lines)
        if free > 1 and not (row is None and self.listing.rows):
            more = self.more(self.size.width, free)[:free]
            lines += [*more, *graph_lines(app_of(self).model, self.size.width, free - len(more))]
        self.facts.update(lines)
