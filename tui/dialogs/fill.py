"""A form to fill in: checked while it is typed, with what would come of it and the command for the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Generic

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Button, Input, Label, Static

from tui.desk import Failure, sentence
from tui.dialogs.dialog import Command, Dialog, Says
from tui.dialogs.trial import Trial
from tui.forms.form import Answer, Field, Form, Wish
from tui.stage import Stage, stage
from wire.client import Refused, Unreachable
from wire.text import plain

LONG, BESIDES = 9, 16
"""A form of more lines takes all the height and scrolls; so does one that does not fit with the rest."""


class Row(Horizontal):
    """What stands on one line of a form, and what is wrong with it."""

    def __init__(self, label: str, fields: Sequence[Field]) -> None:
        super().__init__(classes="row several" if len(fields) > 1 else "row")
        self._label, self._fields = label, fields
        self._wrong = Says(classes="wrong")

    def compose(self) -> ComposeResult:
        """The label, what can be typed, the complaint."""
        yield Label(self._label, markup=False)
        for field in self._fields:
            yield Input(
                field.default, placeholder=field.hint, compact=True, name=field.name, select_on_focus=False
            )
        yield self._wrong

    def tell(self, wrong: Mapping[str, str]) -> None:
        """The first complaint about something that stands here; what is empty is not yet wrong."""
        found = [
            wrong[field.name or ""] for field in self.query(Input) if field.value and field.name in wrong
        ]
        self._wrong.display = bool(found)
        self._wrong.update([(plain(text, 300), "bad") for text in found[:1]])


class Fill(Dialog[None], Generic[Wish, Answer]):
    """Stays open until the controller has accepted it; then `done` gets the answer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "send", show=False),
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
        Binding("ctrl+y", "copy", show=False),
    ]

    def __init__(self, form: Form[Wish, Answer], done: Callable[[Answer], None]) -> None:
        super().__init__()
        self._form: Form[Wish, Answer] = form
        self._done: Callable[[Answer], None] = done
        self._refused: dict[str, str] = {}
        self._sending = False

    def compose(self) -> ComposeResult:
        """One line for each field, what would come of it, then the command."""
        form, told = self._form, False
        lines = len(form.rows) + bool(form.heads)
        long = lines > LONG or lines + BESIDES > self.app.size.height
        self._trial = Trial(2 if long else 5)
        with Vertical(classes="box form long" if long else "box form") as box:
            box.border_title = Text(plain(form.title, 60))  # a plain string would be markup
            box.border_subtitle = f"^s {form.button.lower()} · ^y copy command · esc back"
            with VerticalScroll(can_focus=False, classes="rows"):
                for label, fields in form.rows.items():
                    if form.heads and len(fields) > 1 and not told:
                        told = True
                        with Horizontal(classes="row"):
                            yield Label("", markup=False)
                            for head in form.heads:
                                yield Label(head, classes="head", markup=False)
                    yield Row(label, fields)
            yield Static(classes="refused", markup=False)
            if form.trial is not None:
                yield self._trial
            yield Command("")
            with Horizontal(classes="buttons"):
                yield Button("Back", id="back", compact=True)
                yield Button(form.button, id="do", compact=True)

    def on_mount(self) -> None:
        """Begin with the first line."""
        self._say("")
        self.check()
        self.query(Input).first().focus()

    @property
    def typed(self) -> dict[str, str]:
        """What stands in the form."""
        return {field.name or "": field.value for field in self.query(Input)}

    @on(Input.Changed)
    def changed_line(self, event: Input.Changed) -> None:
        """What the controller said about this line was about what stood there."""
        self._refused.pop(event.input.name or "", None)
        self._say("")
        self.check()

    def check(self) -> None:
        """Say beside each line what is wrong with it, and below what it comes to."""
        read = self._form.read(self.typed)
        for row in self.query(Row):
            row.tell({**read.wrong, **self._refused})
        self.query_one("#do", Button).disabled = self._sending or not read.ready
        self.query_one(Command).say(self._form.command(self.typed))
        if self._form.trial is not None:
            self._trial.try_out(self._form.trial(read.wish) if read.ready and read.wish is not None else None)

    @on(Input.Submitted)
    def next_field(self) -> None:
        """Enter goes to the next line."""
        self.app.action_focus_next()

    @on(Button.Pressed, "#back")
    def back(self) -> None:
        """Send nothing."""
        self.dismiss(None)

    @on(Button.Pressed, "#do")
    def action_send(self) -> None:
        """Send it, if nothing is wrong; else go to what is."""
        read, form, on_stage = self._form.read(self.typed), self._form, stage(self)
        wish = read.wish
        if read.wrong:
            wrong = next(field for field in self.query(Input) if field.name in read.wrong)
            wrong.focus()
            self._say(f"{wrong.name}: {read.wrong[wrong.name or '']}")
        elif on_stage.model.stale:
            self._say("the connection is lost: changes have to wait")
        elif wish is not None and not self._sending:
            self._sending = True
            self._say("")
            self.check()
            on_stage.desk.ask(
                lambda client: form.send(client, wish), lambda answer: self._answered(on_stage, answer)
            )

    def _answered(self, on_stage: Stage, answer: Answer | Failure) -> None:
        """Accepted, it closes; refused, it says why where it stands, and waits for something better."""
        there, self._sending = self.is_attached, False
        if not isinstance(answer, (Refused, Unreachable)):
            if there:
                self.dismiss(None)
            self._done(answer)
        elif there:
            name = self._form.name_of(answer.problem.where) if isinstance(answer, Refused) else ""
            if isinstance(answer, Refused) and name:
                self._refused[name] = answer.problem.message
                self._say(answer.problem.hint)
                next(field for field in self.query(Input) if field.name == name).focus()
            else:
                self._say(sentence(answer))
            self.check()
        else:
            on_stage.say(sentence(answer), "bad")

    def _say(self, text: str) -> None:
        says = self.query_one(".refused", Static)
        says.update(plain(text, 400))
        says.display = bool(text)

    def action_copy(self) -> None:
        """The command, for the shell."""
        stage(self).copy(self._form.command(self.typed))
