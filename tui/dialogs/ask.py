"""The question before a change; the focus is on the button that does nothing."""

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

from tui.confirm import Question
from tui.dialogs.dialog import Command, Dialog, Says
from tui.dialogs.trial import Trial
from tui.stage import stage
from wire.text import plain

TRIED, LOW = 3, 24
"""Lines for who would start sooner or later; on a lower screen it is one."""


class Ask(Dialog[str]):
    """Answers None for no; for yes what was typed (often nothing).

    `question` is asked again whenever the cluster changes; when it has become pointless it returns None
    and the dialog closes by itself.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "app.focus_previous", show=False),
        Binding("right,l", "app.focus_next", show=False),
        Binding("y", "copy", show=False),
        Binding("q,n", "leave", show=False),
    ]

    def __init__(self, question: Callable[[], Question | None], first: Question) -> None:
        super().__init__()
        self._question, self._asked = question, first

    def compose(self) -> ComposeResult:
        """What would happen, the command, the buttons."""
        asked, self._trial = self._asked, Trial(TRIED if self.app.size.height >= LOW else 1)
        with Vertical(classes="box ask") as box:
            box.border_title = Text(plain(asked.title, 60))  # a plain string would be markup
            with VerticalScroll(classes="facts", can_focus=False):
                for line in asked.lines:
                    yield Says(line)
            if asked.trial is not None:
                yield self._trial
            yield Command(asked.command)
            if asked.must_type or asked.reason:
                prompt = "why? everybody will see it" if asked.reason else f"type {asked.must_type} to go on"
                yield Input(placeholder=prompt, compact=True)
            with Horizontal(classes="buttons"):
                yield Button("Back", id="back", compact=True)
                yield Button(asked.button, id="do", compact=True, disabled=bool(asked.must_type))

    def on_mount(self) -> None:
        """Nothing happens by accident."""
        self._trial.try_out(self._asked.trial)
        target = Input if self._asked.reason else Button
        self.query(target).first().focus()

    @property
    def command(self) -> str:
        """The same for a shell, with what has been typed."""
        reason = (
            f" {self._asked.reason} {shlex.quote(self.typed)}" if self._asked.reason and self.typed else ""
        )
        return self._asked.command + reason

    @property
    def typed(self) -> str:
        """What stands in the input, if there is one."""
        return next((field.value.strip() for field in self.query(Input)), "")

    @on(Input.Changed)
    def check(self) -> None:
        """The number must be right before the button works; a reason belongs to the command."""
        self.query_one(Command).say(self.command)
        if self._asked.must_type:
            self.query_one("#do", Button).disabled = self.typed != self._asked.must_type

    @on(Input.Submitted)
    def submitted(self) -> None:
        """Enter behind a reason means yes; behind a number it goes to the button."""
        if self._asked.reason:
            self.dismiss(self.typed)
        elif self.typed == self._asked.must_type:
            self.query_one("#do", Button).focus()

    @on(Button.Pressed, "#back")
    def back(self) -> None:
        """Do nothing."""
        self.dismiss(None)

    @on(Button.Pressed, "#do")
    def do(self) -> None:
        """Do it."""
        self.dismiss(self.typed)

    def action_copy(self) -> None:
        """The command, for the shell."""
        stage(self).copy(self.command)

    def changed(self) -> None:
        """Ask again with what is true now."""
        question = self._question()
        if question is None:
            stage(self).say("nothing left to do: it has changed meanwhile", "warn")
            self.dismiss(None)
        elif stage(self).model.stale:
            stage(self).say("the connection is lost: changes have to wait", "warn")
            self.dismiss(None)
        elif question.title != self._asked.title:
            self._asked = question
            self.refresh(recompose=True)
            self.call_after_refresh(self.on_mount)
