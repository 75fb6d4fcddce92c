"""The confirmation dialog: the consequences, the command, and two buttons."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Button, Input

from tui.app_interface import app_of
from tui.changes.confirm import Confirmation
from tui.dialogs.dialog import CommandLine, Dialog, DialogLine
from tui.dialogs.live_what_if import LiveWhatIf
from wire.text import printable

TRIED, LOW = 3, 24
"""The number of lines for the what-if answer. A screen with fewer than LOW lines has one line for it."""


class ConfirmDialog(Dialog[str]):
    """Asks for confirmation. The result is None for no, and the typed text, which may be empty, for yes.

    `question` returns the content of the dialog and is called again after each change of the cluster. If it
    returns None, nothing is left to do and the dialog closes.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "app.focus_previous", show=False),
        Binding("right,l", "app.focus_next", show=False),
        Binding("y", "copy", show=False),
        Binding("q,n", "leave", show=False),
    ]

    def __init__(self, question: Callable[[], Confirmation | None], first: Confirmation) -> None:
        super().__init__()
        self._question, self._asked = question, first

    def compose(self) -> ComposeResult:
        """Show the consequences, the command and the buttons."""
        asked, self._trial = self._asked, LiveWhatIf(TRIED if self.app.size.height >= LOW else 1)
        with Vertical(classes="box ask") as box:
            # Use a Text object, because Textual would parse a plain string as markup.
            box.border_title = Text(printable(asked.title, 60))
            with VerticalScroll(classes="facts", can_focus=False):
                for line in asked.lines:
                    yield DialogLine(line)
            if asked.trial is not None:
                yield self._trial
            yield CommandLine(asked.command)
            if asked.must_type or asked.reason:
                prompt = (
                    "why? all users see the reason" if asked.reason else f"type {asked.must_type} to go on"
                )
                yield Input(placeholder=prompt, compact=True)
            with Horizontal(classes="buttons"):
                yield Button("Back", id="back", compact=True)
                yield Button(asked.button, id="do", compact=True, disabled=bool(asked.must_type))

    def on_mount(self) -> None:
        """Focus the input for the number or the reason. Without an input, focus the button that closes the
        dialog.
        """
        self._trial.try_out(self._asked.trial)
        target = Input if self._asked.reason or self._asked.must_type else Button
        self.query(target).first().focus()

    @property
    def command(self) -> str:
        """The shell command with the typed text."""
        reason = (
            f" {self._asked.reason} {shlex.quote(self.typed)}" if self._asked.reason and self.typed else ""
        )
        return self._asked.command + reason

    @property
    def typed(self) -> str:
        """The typed text; empty if the dialog has no input."""
        return next((field.value.strip() for field in self.query(Input)), "")

    @on(Input.Changed)
    def check(self) -> None:
        """Enable the confirm button if the typed number is right, and show a typed reason in the command."""
        self.query_one(CommandLine).say(self.command)
        if self._asked.must_type:
            self.query_one("#do", Button).disabled = self.typed != self._asked.must_type

    @on(Input.Submitted)
    def submitted(self) -> None:
        """Enter confirms after a reason; after a number it moves the focus to the confirm button."""
        if self._asked.reason:
            self.dismiss(self.typed)
        elif self.typed == self._asked.must_type:
            self.query_one("#do", Button).focus()

    @on(Button.Pressed, "#back")
    def back(self) -> None:
        self.dismiss(None)

    @on(Button.Pressed, "#do")
    def do(self) -> None:
        self.dismiss(self.typed)

    def action_copy(self) -> None:
        app_of(self).copy(self.command)

    def changed(self) -> None:
        """Update the content to the present state of the cluster."""
        question = self._question()
        if question is None:
            app_of(self).say("nothing left to do: the cluster has changed", "warn")
            self.dismiss(None)
        elif app_of(self).model.stale:
            app_of(self).say("the connection is lost: changes have to wait", "warn")
            self.dismiss(None)
        elif question.title != self._asked.title:
            self._asked = question
            self.refresh(recompose=True)
            self.call_after_refresh(self.on_mount)
