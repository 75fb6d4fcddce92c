"""The line in which the user types a filter or a text to search. Every key filters the list again."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input

from tui.dialogs.dialog import DialogLine

FILTERS: Final = "word  !word  user:alice  gpus:>=4"


class FilterLine(Horizontal):
    """The input for a filter or for a text to search. Enter keeps the typed filter. Escape restores the
    filter that was set when the input was opened.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", show=False),
        Binding("ctrl+c", "give_up", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._narrow: Callable[[str], str] = lambda _: ""
        self._done: Callable[[], None] = lambda: None
        self._before = ""
        self._then: Callable[[str], None] | None = None
        """The function that is called with the typed text after Enter; None while the input is
        for a filter.
        """

    def compose(self) -> ComposeResult:
        yield DialogLine([(" /", "key")], classes="slash")
        yield Input(compact=True, select_on_focus=False, placeholder=FILTERS)
        yield DialogLine(classes="wrong")

    def open(self, text: str, narrow: Callable[[str], str], done: Callable[[], None]) -> None:
        """Show the input with this text. After every key, `narrow` is called with the typed text: `narrow`
        sets the filter, and returns an error message, or an empty text if the filter is valid. When the user
        closes the input, `done` is called.
        """
        self._then = None
        self._narrow, self._done, self._before = narrow, done, text
        self._show(text, FILTERS)

    def ask(self, hint: str, then: Callable[[str], None], done: Callable[[], None]) -> None:
        """Show an empty input for a text to search. After Enter, `then` is called with the typed text. `done`
        is called when the user closes the input.
        """
        self._then, self._done, self._narrow = then, done, lambda _: ""
        self._show("", hint)

    def _show(self, text: str, hint: str) -> None:
        self.display = True
        field = self.query_one(Input)
        field.placeholder = hint
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
        then, text = self._then, event.value
        self._close()
        if then is not None:
            then(text)

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
