"""The dialog that asks for confirmation. It shows the effect of a change, its shell command, and two
buttons.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Button, Input

from tui.app_interface import app_of
from tui.changes.confirmations import Confirmation
from tui.dialogs.dialog import CommandLine, Dialog, DialogLine
from tui.dialogs.live_what_if import LiveWhatIf
from wire.text import printable

TRIED, LOW = 3, 24
"""The what-if answer (the effect of the change on other jobs) has TRIED lines in the dialog, or one line on a
screen of fewer than LOW lines.
"""


@dataclass(frozen=True)
class Confirmed:
    """The answer of a user who confirms a change: the shell command for the change, the typed text, which may
    be empty, and the id of the what-if answer that the dialog showed.
    """

    command: str
    typed: str = ""
    what_if: str = ""


class ConfirmDialog(Dialog[Confirmed]):
    """Asks the user to confirm a change. The result is None if the user declines. For a change of many jobs,
    the user must type the number of jobs.

    `question` returns the content of the dialog, and is called again after each change of the cluster.

    1. If `question` returns None, because nothing is left to change, or if the connection is lost, the dialog
       closes.
    2. If the title has changed, for example because a job has ended, the dialog is built again, and the focus
       is set as when it was opened.
    3. Otherwise only the changed texts are shown, for example that a waiting job has started.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "app.focus_previous", show=False),
        Binding("right,l", "app.focus_next", show=False),
        Binding("y", "copy", show=False),
        Binding("q,n", "leave", show=False),
    ]

    def __init__(self, question: Callable[[], Confirmation | None], first: Confirmation) -> None:
        super().__init__()
        self._question, self._confirmation = question, first

    def compose(self) -> ComposeResult:
        content, self._trial = self._confirmation, LiveWhatIf(TRIED if self.app.size.height >= LOW else 1)
        with Vertical(classes="box ask") as box:
            # Use a Text object, because Textual would parse a plain string as markup.
            box.border_title = Text(printable(content.title, 60))
            if self.above_plan and content.trial is not None:
                box.border_subtitle = "tab before/after · esc back"
            with VerticalScroll(classes="facts", can_focus=False):
                for line in content.lines:
                    yield DialogLine(line)
            if content.trial is not None:
                yield self._trial
            yield CommandLine(content.command)
            if content.must_type or content.reason:
                prompt = (
                    "reason (optional), shown to all users"
                    if content.reason
                    else f"type {content.must_type} to confirm"
                )
                yield Input(placeholder=prompt, compact=True)
            with Horizontal(classes="buttons"):
                yield Button("Back", id="back", compact=True)
                yield Button(content.button, id="do", compact=True, disabled=bool(content.must_type))

    def on_mount(self) -> None:
        """Set the focus to the input in which the user types a reason or the number of jobs. If the dialog
        has no input, set the focus to the button that closes the dialog.
        """
        self._trial.try_out(self._confirmation.trial)
        target = Input if self._confirmation.reason or self._confirmation.must_type else Button
        self.query(target).first().focus()

    @property
    def command(self) -> str:
        """Return the shell command for the change, with the typed reason."""
        reason = (
            f" {self._confirmation.reason} {shlex.quote(self.typed)}"
            if self._confirmation.reason and self.typed
            else ""
        )
        return self._confirmation.command + reason

    @property
    def typed(self) -> str:
        """Return the text that the user typed; empty if the dialog has no input."""
        return next((field.value.strip() for field in self.query(Input)), "")

    @on(Input.Changed)
    def check(self) -> None:
        """Show the typed reason in the shell command. If the user must type the number of jobs, enable the
        confirm button only while the typed number is right.
        """
        self.query_one(CommandLine).show_command(self.command)
        if self._confirmation.must_type:
            self.query_one("#do", Button).disabled = self.typed != self._confirmation.must_type

    @on(Input.Submitted)
    def submitted(self) -> None:
        """Handle the key Enter in an input. In the input for a reason, confirm the change. In the input for
        the number of jobs, move the focus to the confirm button if the number is right.
        """
        if self._confirmation.reason:
            self.dismiss(Confirmed(self.command, self.typed, self._trial.shown_id))
        elif self.typed == self._confirmation.must_type:
            self.query_one("#do", Button).focus()

    @on(Button.Pressed, "#back")
    def back(self) -> None:
        self.dismiss(None)

    @on(Button.Pressed, "#do")
    def do(self) -> None:
        self.dismiss(Confirmed(self.command, self.typed, self._trial.shown_id))

    def action_copy(self) -> None:
        app_of(self).copy(self.command)

    def changed(self) -> None:
        question = self._question()
        if question is None:
            app_of(self).show_message("nothing left to do: the cluster has changed", "warn")
            self.dismiss(None)
        elif app_of(self).model.stale:
            app_of(self).show_message("the connection is lost: no changes are possible now", "warn")
            self.dismiss(None)
        elif question.title != self._confirmation.title:
            self._confirmation = question
            self.refresh(recompose=True)
            self.call_after_refresh(self.on_mount)
        elif question != self._confirmation:
            self._confirmation = question
            self._show_changes()

    def _show_changes(self) -> None:
        """Show the new texts in the widgets that the dialog has, so that the typed text and the focus do not
        change.
        """
        content, facts = self._confirmation, self.query_one(".facts", VerticalScroll)
        shown = list(facts.query(DialogLine))
        for line, pieces in zip_longest(shown, content.lines):
            if line is None:
                facts.mount(DialogLine(pieces))
            else:
                line.display = pieces is not None
                line.update(pieces or ())
        self.query_one("#do", Button).label = content.button
        self.query_one(CommandLine).show_command(self.command)
        self._trial.try_out(content.trial)
