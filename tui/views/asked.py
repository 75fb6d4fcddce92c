"""A list that the stream does not carry: asked for while it is shown, the row under the cursor told below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from textual.app import ComposeResult

from tui.actions import BY_NAME, shown_key
from tui.desk import Failure, sentence
from tui.feed import Changes
from tui.listing import Listing
from tui.paint import Piece
from tui.stage import stage
from tui.views.listed import Listed, Row
from tui.widgets.facts import Facts
from wire.client import Client, Refused, Unreachable
from wire.text import plain

Answer = TypeVar("Answer")


class Asked(Listed[str, Row], Generic[Row, Answer]):
    """Asked again every few seconds, and at once when an event says that it has changed."""

    CHANGED_BY: ClassVar[frozenset[str]] = frozenset()
    """Kinds of events after which the answer is another one."""
    REASK_S: ClassVar[int] = 5

    def __init__(self, listing: Listing[str, Row]) -> None:
        super().__init__(listing)
        self.facts = Facts()
        self._asking = self._again = False
        self._answered_once = False
        self._wrong = ""
        self._ticks = 0

    # -- to be said by each view --------------------------------------------------------

    def question(self, client: Client) -> Answer:
        """Ask the controller; in a thread of the desk."""
        raise NotImplementedError

    def rows_of(self, answer: Answer) -> Sequence[Row]:
        """The rows of an answer."""
        raise NotImplementedError

    def nothing(self) -> Sequence[Piece]:
        """What to say where there are no rows: what it means, and what to do."""
        raise NotImplementedError

    def told(self, row: Row) -> list[list[Piece]]:
        """What is worth knowing about a row, besides its line."""
        raise NotImplementedError

    # -- asking -------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask now, or once the answer has come that is under way."""
        on_stage = stage(self)
        if self._asking or on_stage.model.connection.state == "lost":
            self._again = self._asking
            return
        self._asking, self._again = True, False
        on_stage.desk.ask(self.question, self._answered)

    def _answered(self, answer: Answer | Failure) -> None:
        if not self.is_attached:
            return
        self._asking = False
        if isinstance(answer, (Refused, Unreachable)):
            self._wrong = sentence(answer)
        else:
            self._wrong, self._answered_once = "", True
            self.listing.replace(self.rows_of(answer))
        self.table.sync()
        self.table.refresh()
        self.moved()
        if self._again:
            self.ask()

    def changed(self, changes: Changes) -> None:
        """Shown again, or something happened to it."""
        if changes.fresh or any(event.kind in self.CHANGED_BY for event in changes.events):
            self.ask()

    def tick(self) -> None:
        """Times go on, and so does what is used."""
        self._ticks += 1
        if self._ticks % self.REASK_S == 0:
            self.ask()
        self.table.refresh_changed()
        self._tell()

    # -- what it shows ------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """The list above, what is under the cursor below."""
        yield self.table
        yield self.facts

    @property
    def here(self) -> Row | None:
        """The row under the cursor."""
        return self.listing.rows.get(self.listing.cursor) if self.listing.cursor is not None else None

    def empty(self) -> Sequence[Piece]:
        """Not asked, not answered, filtered away, or nothing there."""
        if self.listing.rows:
            return [("nothing passes the filter; esc takes it back", "muted")]
        if self._wrong:
            return [(plain(self._wrong, 300), "warn")]
        return self.nothing() if self._answered_once else [("asking…", "faint")]

    def status(self) -> Sequence[Piece]:
        """What could not be found out."""
        return [(plain(self._wrong, 300), "warn")] if self._wrong else self.legend()

    def hint(self, name: str, does: str) -> Sequence[Piece]:
        """; N sets one: how to get what is not there, for whoever may."""
        if stage(self).read_only:
            return ()
        return [("; ", "muted"), (shown_key(BY_NAME[name].keys[0]), "key"), (f" {does}", "muted")]

    def legend(self) -> Sequence[Piece]:
        """What figures and signs mean."""
        return ()

    def moved(self) -> None:
        """Other facts below."""
        super().moved()
        self._tell()

    def on_resize(self) -> None:
        """Other widths, other lines."""
        self._tell()

    def _tell(self) -> None:
        """The facts take what they need, up to half of the height."""
        row = self.here
        lines: list[list[Piece]] = [] if row is None else [[("─" * 400, "line")], *self.told(row)]
        self.facts.update(lines[: max(0, self.size.height // 2)])
