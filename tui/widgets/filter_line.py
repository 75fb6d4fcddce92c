"""The line in which the user types a filter. The filtered list changes with every key pressed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input

from tui.dialogs.dialog import DialogLine


class FilterLine(Horizontal):
    """The input for a filter. Enter keeps the filter, and Escape restores the previous one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", show=False),
        Binding("ctrl+c", "give_up", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._narrow: Callable[[str], str] = lambda _: ""
        self._done: Callable[[], None] = lambda: None
        self._before = ""

    def compose(self) -> ComposeResult:
        yield DialogLine([(" /", "key")], classes="slash")
        yield Input(compact=True, select_on_focus=False, placeholder="word  !word  user:alice  gpus:>=4")
        yield DialogLine(classes="wrong")

    def open(self, text: str, narrow: Callable[[str], str], done: Callable[[], None]) -> None:
        """Show the input with this text. After every key, `narrow` is called with the typed text. It sets the
        filter, and returns an error message, or an empty text if the filter is valid. When the user closes
        the input, `done` is called.
        """
        self._narrow, self._done, self._before = narrow, done, text
        self.display = True
        field = self.query_one(Input)
        field.value = text
        field.cursor_position = len(text)
        self.screen.set_focus(field)

    @on(Input.Changed)
    def changed(self, event: Input.Changed) -> None:
        event.stop()
        self._try(event.value)

    @on(Input.Submitted)
    def keep(self, event: Input.Submitted) -> None:
        event.stop()
        self._close()

    def action_give_up(self) -> None:
        """Close the input, and restore the previous filter."""
        self._try(self._before)
        self._close()

    def _try(self, text: str) -> None:
        wrong = self._narrow(text)
        self.query(".wrong").first(DialogLine).update([(wrong, "bad")])

    def _close(self) -> None:
        self.display = False
        self._done()
