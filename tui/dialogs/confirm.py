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
"""Lines for the what-if answer; one line on a low screen."""


class ConfirmDialog(Dialog[str]):
    """Returns None for no, and the typed text (often empty) for yes.

    `question` makes the content again whenever the cluster changes. When it returns None, because there is
    nothing left to do, the dialog closes.
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
        """Consequences, command, buttons."""
        asked, self._trial = self._asked, LiveWhatIf(TRIED if self.app.size.height >= LOW else 1)
        with Vertical(classes="box ask") as box:
            # Text, because a plain string would be parsed as markup
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
        """Focus the line for the number or the reason, otherwise the button that does nothing."""
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
        """The typed text; empty without an input."""
        return next((field.value.strip() for field in self.query(Input)), "")

    @on(Input.Changed)
    def check(self) -> None:
        """Enable the button when the number is right; put a reason into the command."""
        self.query_one(CommandLine).say(self.command)
        if self._asked.must_type:
            self.query_one("#do", Button).disabled = self.typed != self._asked.must_type

    @on(Input.Submitted)
    def submitted(self) -> None:
        """Enter after a reason means yes; after a number it moves to the button."""
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
        """Update the content to the present state."""
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
