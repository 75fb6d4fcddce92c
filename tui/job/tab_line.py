"""The line with the tabs of a job. On the tab of the log, the line also shows the state of the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from textual import events

from tui.look.styled_lines import Piece, both_ends, length
from tui.widgets.line import FrameLine

LOG, WHY, ATTEMPTS, GPUS, SPEC, EVENTS = TABS = ("log", "why", "attempts", "GPUs", "spec", "events")

_BEFORE: Final = 3
_GAP: Final = 2


class TabLine(FrameLine):
    """The line with the names of the tabs. `shown` returns the shown tab, `open_tab` shows another tab, and
    `note` returns the text at the right end of the line. A click on the name of a tab shows this tab.
    """

    def __init__(
        self, shown: Callable[[], str], open_tab: Callable[[str], None], note: Callable[[], Sequence[Piece]]
    ) -> None:
        super().__init__()
        self._shown, self._open_tab, self._note = shown, open_tab, note

    def pieces(self, width: int) -> Sequence[Piece]:
        """Return the texts of the line, such as ── log  why  attempts ─────── stdout  1,204 lines ──."""
        pieces: list[Piece] = [("── ", "line")]
        for tab in TABS:
            pieces += [(tab, "sorted" if tab == self._shown() else "muted"), (" " * _GAP, "text")]
        note = self._note()
        end: list[Piece] = [(" ", "text"), *note, (" ──", "line")] if note else []
        room = width - length(pieces) - length(end)
        return both_ends([*pieces, ("─" * max(0, room), "line")], end, width)

    def on_click(self, event: events.Click) -> None:
        at = _BEFORE
        for tab in TABS:
            if at <= event.x < at + len(tab):
                self._open_tab(tab)
            at += len(tab) + _GAP
