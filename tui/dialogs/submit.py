"""The form for a new job: checked while it is typed, with the command that does the same."""

from __future__ import annotations

import os
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Button, Input, Label

from tui import form
from tui.dialogs.dialog import Command, Dialog, Says
from tui.stage import stage
from wire.spec import JobSpec


class SubmitForm(Dialog[JobSpec]):
    """Answers the job to submit, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "submit", show=False),
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
        Binding("ctrl+y", "copy", show=False),
    ]

    def compose(self) -> ComposeResult:
        """One line for each field, then the command."""
        with Vertical(classes="box form") as box:
            box.border_title = "New job"
            box.border_subtitle = "^s submit · ^y copy command · esc back"
            with VerticalScroll(can_focus=False):
                for field in form.FIELDS:
                    with Horizontal(classes="row"):
                        yield Label(field.name, markup=False)
                        value = os.getcwd() if field.target == "workdir" else field.default
                        yield Input(
                            value,
                            placeholder=field.hint,
                            compact=True,
                            name=field.name,
                            select_on_focus=False,
                        )
                        yield Says(classes="wrong")
            yield Command("")
            with Horizontal(classes="buttons"):
                yield Button("Back", id="back", compact=True)
                yield Button("Submit", id="do", compact=True)

    def on_mount(self) -> None:
        """Begin with the command."""
        self._touched = False
        self.check()
        self.query(Input).first().focus()

    @property
    def typed(self) -> dict[str, str]:
        """What stands in the form."""
        return {field.name or "": field.value for field in self.query(Input)}

    @on(Input.Changed)
    def check(self) -> None:
        """Say beside each field what is wrong with it, and below what it comes to."""
        read = form.read(self.typed)
        for field, says in zip(self.query(Input), self.query(".wrong").results(Says), strict=True):
            wrong = read.wrong.get(field.name or "", "")
            # An empty form is not yet wrong.
            says.display = bool(wrong) and bool(field.value)
            says.update([(wrong, "bad")])
        self.query_one("#do", Button).disabled = bool(read.wrong)
        self.query_one(Command).say(form.command(self.typed))

    @on(Input.Submitted)
    def next_field(self) -> None:
        """Enter goes to the next field."""
        self.app.action_focus_next()

    @on(Button.Pressed, "#back")
    def back(self) -> None:
        """Submit nothing."""
        self.dismiss(None)

    @on(Button.Pressed, "#do")
    def action_submit(self) -> None:
        """Submit, if nothing is wrong; else go to what is."""
        read = form.read(self.typed)
        if not read.wrong:
            self.dismiss(read.spec)
            return
        wrong = next(field for field in self.query(Input) if field.name in read.wrong)
        wrong.focus()

    def action_copy(self) -> None:
        """The command, for the shell."""
        stage(self).copy(form.command(self.typed))
