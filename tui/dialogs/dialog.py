"""Base class of all dialogs. A dialog is a box above a view. While the dialog is open, the view is still
updated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

from tui import actions
from tui.app_interface import app_of
from tui.look.styled_lines import Piece
from tui.widgets.line import FrameLine
from wire.text import printable

Result = TypeVar("Result")


class Dialog(ModalScreen[Result]):
    """A modal dialog. Escape closes the dialog without a result."""

    AUTO_FOCUS = ""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("ctrl+c", "leave", show=False),
        Binding("tab", "compare", show=False),
    ]

    def on_mount(self) -> None:
        """If the dialog is opened above the plan, place the dialog so that the chart stays visible, because
        the chart shows the effect of the change.
        """
        if self.above_plan:
            self.add_class("beside")

    @property
    def above_plan(self) -> bool:
        """Return True if the dialog is open above the view Plan."""
        return app_of(self).view.NAME == actions.PLAN

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_compare(self) -> None:
        """Above the plan, switch the chart between the plan without the change and the plan with it. In
        other views, move the focus.
        """
        if self.above_plan:
            app_of(self).compare_effect()
        else:
            self.app.action_focus_next()

    def changed(self) -> None:
        """Update the dialog. The application calls this after each change of the cluster."""


class CommandLine(Static):
    """Shows the shell command that does the same as a dialog, on as many lines as necessary."""

    def __init__(self, command: str) -> None:
        super().__init__(classes="command", markup=False)
        self.show_command(command)

    def show_command(self, command: str) -> None:
        self.update(f"$ {printable(command, 1000)}")


class DialogLine(FrameLine):
    def __init__(self, pieces: Sequence[Piece] = (), *, classes: str = "") -> None:
        super().__init__(classes=classes)
        self._pieces = pieces

    def update(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self.refresh()

    def pieces(self, _width: int) -> Sequence[Piece]:
        return self._pieces
