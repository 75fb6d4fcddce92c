"""A box over the view; the view goes on underneath."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

from tui.paint import Piece
from tui.widgets.line import Line
from wire.text import plain

Result = TypeVar("Result")


class Dialog(ModalScreen[Result]):
    """Escape leaves it without consequences."""

    AUTO_FOCUS = ""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("ctrl+c", "leave", show=False),
    ]

    def action_leave(self) -> None:
        """Close, nothing chosen."""
        self.dismiss(None)

    def changed(self) -> None:
        """The model changed while the dialog is open."""


class Command(Static):
    """The same thing for a shell, on as many lines as it needs."""

    def __init__(self, command: str) -> None:
        super().__init__(classes="command", markup=False)
        self.say(command)

    def say(self, command: str) -> None:
        """Another command."""
        self.update(f"$ {plain(command, 1000)}")


class Says(Line):
    """A line of a dialog."""

    def __init__(self, pieces: Sequence[Piece] = (), *, classes: str = "") -> None:
        super().__init__(classes=classes)
        self._pieces = pieces

    def update(self, pieces: Sequence[Piece]) -> None:
        """Say something else."""
        self._pieces = pieces
        self.refresh()

    def pieces(self, _width: int) -> Sequence[Piece]:
        """What it says."""
        return self._pieces
