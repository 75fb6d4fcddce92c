"""The dialog that shows a form. While the user types, the dialog shows errors, a what-if answer and the shell
command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Generic

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Button, Input, Label, Static

from tui.app_interface import AppInterface, app_of
from tui.data.known_names import ControllerNames, completed, known_names, matching, names_of_controller
from tui.data.request_workers import Failure, effect_changed, failure_text
from tui.dialogs.dialog import CommandLine, Dialog, DialogLine
from tui.dialogs.live_what_if import LiveWhatIf
from tui.forms.form import Answer, Field, Form, Request
from tui.look import cells
from tui.look.styled_lines import Piece
from wire.http.client import Client, Refused, Unreachable
from wire.text import printable

LONG, BESIDES = 9, 16
"""A form scrolls if the form has more than LONG lines, or if the form and the BESIDES other lines of the
dialog do not fit on the screen.
"""
TALL = 32
"""On a screen of at least this many lines, a long form shows four lines of the what-if answer, so that the
largest delay and the largest gain are visible. On a smaller screen, a long form shows two lines.
"""


class FormRow(Horizontal):
    """One line of a form: a label, one or more inputs, and the error of an input."""

    def __init__(self, label: str, fields: Sequence[Field]) -> None:
        super().__init__(classes="row several" if len(fields) > 1 else "row")
        self._label, self._fields = label, fields
        self._wrong = DialogLine(classes="wrong")

    def compose(self) -> ComposeResult:
        yield Label(self._label, markup=False)
        for field in self._fields:
            yield Input(
                field.default, placeholder=field.hint, compact=True, name=field.name, select_on_focus=False
            )
        yield self._wrong

    def show_notes(self, wrong: Mapping[str, str], picks: Sequence[Piece]) -> None:
        """Show the first error of an input on this line. `wrong` has the errors of the form by field name.
        Errors of empty inputs are not shown, because the user may not have reached these inputs yet. Without
        an error, show `picks`: the names that the user can choose for the input with the focus.
        """
        found = [
            wrong[field.name or ""] for field in self.query(Input) if field.value and field.name in wrong
        ]
        self._wrong.display = bool(found or picks)
        self._wrong.update([(printable(text, 300), "bad") for text in found[:1]] or picks)


class FormDialog(Dialog[None], Generic[Request, Answer]):
    """Shows a form until the controller has accepted its request. Then the dialog closes, and `done` is
    called with the controller's answer.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "send", show=False),
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
        Binding("ctrl+y", "copy", show=False),
        Binding("ctrl+r", "restore_draft", show=False, priority=True),
        Binding("ctrl+n", "pick(1)", show=False, priority=True),
        Binding("ctrl+p", "pick(-1)", show=False, priority=True),
    ]

    def __init__(self, form: Form[Request, Answer], done: Callable[[Answer], None]) -> None:
        super().__init__()
        self._form: Form[Request, Answer] = form
        self._done: Callable[[Answer], None] = done
        self._refused: dict[str, str] = {}
        self._sending = False
        self._names = ControllerNames()
        self._picking: tuple[str, str, str] = ("", "", "")
        """While the user chooses among names: the field, the text before the first choice, and the name that
        is chosen now. Otherwise three empty texts.
        """

    def compose(self) -> ComposeResult:
        form, has_heads = self._form, False
        lines = len(form.rows) + bool(form.heads)
        long = lines > LONG or lines + BESIDES > self.app.size.height
        self._trial = LiveWhatIf(5 if not long else 4 if self.app.size.height >= TALL else 2)
        with Vertical(classes="box form long" if long else "box form") as box:
            # Use a Text object, because Textual would parse a plain string as markup.
            box.border_title = Text(printable(form.title, 60))
            compare = "tab before/after · " if self.above_plan and form.trial is not None else ""
            box.border_subtitle = (
                f"{self._draft_hint()}{compare}^s {form.button.lower()} · ^y copy command · esc back"
            )
            with VerticalScroll(can_focus=False, classes="rows"):
                for label, fields in form.rows.items():
                    if form.heads and len(fields) > 1 and not has_heads:
                        has_heads = True
                        with Horizontal(classes="row"):
                            yield Label("", markup=False)
                            for head in form.heads:
                                yield Label(head, classes="head", markup=False)
                    yield FormRow(label, fields)
            yield Static(classes="refused", markup=False)
            if form.trial is not None:
                yield self._trial
            yield CommandLine("")
            with Horizontal(classes="buttons"):
                yield Button("Back", id="back", compact=True)
                yield Button(form.button, id="do", compact=True)

    def on_mount(self) -> None:
        self._show_refusal("")
        self.check()
        self.query(Input).first().focus()
        if any(field.picks for field in self._form.fields):
            app_of(self).requests.ask(names_of_controller, self._got_names)

    def _got_names(self, names: ControllerNames | Failure) -> None:
        if isinstance(names, ControllerNames) and self.is_attached:
            self._names = names
            self._show_notes()

    def on_descendant_focus(self) -> None:
        """Show the names that the user can choose for the input that now has the focus."""
        self._show_notes()

    def _picks(self) -> tuple[Field, Input, list[str]] | None:
        """Return the field with the focus, its input, and the names that match its text; all names while the
        text is the default. Return None if the form offers no names for this field.
        """
        focused = self.focused
        field = next(
            (each for each in self._form.fields if isinstance(focused, Input) and each.name == focused.name),
            None,
        )
        if field is None or not field.picks or not isinstance(focused, Input):
            return None
        text = self._picking[1] if self._picking[0] == field.name else focused.value
        names = known_names(field.picks, app_of(self).model, self._names, self.typed)
        if field.default and text == field.default:
            return field, focused, names
        return field, focused, matching(names, text, several=field.several)

    def action_pick(self, by: int) -> None:
        """Write the next (`by` = 1) or the previous (`by` = -1) matching name into the input with the
        focus.
        """
        found = self._picks()
        if found is None or not found[2]:
            return
        field, line, names = found
        name, text, chosen = self._picking
        if name != field.name:
            text, chosen = line.value, ""
        place = names.index(chosen) + by if chosen in names else (0 if by > 0 else -1)
        chosen = names[place % len(names)]
        self._picking = (field.name, text, chosen)
        line.value = completed("" if text == field.default else text, chosen, several=field.several)
        line.cursor_position = len(line.value)

    def _show_notes(self) -> None:
        read, found = self._form.read(self.typed), self._picks()
        for row in self.query(FormRow):
            here = found is not None and any(each is found[1] for each in row.query(Input))
            row.show_notes(
                {**read.wrong, **self._refused},
                _names_line(found[2], self._picking[2]) if here and found is not None else (),
            )

    @property
    def typed(self) -> dict[str, str]:
        return {field.name or "": field.value for field in self.query(Input)}

    @on(Input.Changed)
    def changed_line(self, event: Input.Changed) -> None:
        """Remove the error that the controller reported for this field, because the user has changed the text
        of the field. If the user has typed and not chosen a name, end the choice among names.
        """
        self._refused.pop(event.input.name or "", None)
        name, text, chosen = self._picking
        field = next((each for each in self._form.fields if each.name == name), None)
        if field is not None and event.input.value != completed(
            "" if text == field.default else text, chosen, several=field.several
        ):
            self._picking = ("", "", "")  # The user has typed, so the choice among names has ended.
        self._show_refusal("")
        self.check()

    def check(self) -> None:
        """Update the error on each line, the what-if answer and the shell command."""
        read = self._form.read(self.typed)
        self._show_notes()
        self.query_one("#do", Button).disabled = self._sending or not read.ready
        self.query_one(CommandLine).show_command(self._form.command(self.typed))
        if self._form.trial is not None:
            self._trial.try_out(
                self._form.trial(read.request) if read.ready and read.request is not None else None
            )

    @on(Input.Submitted)
    def next_field(self) -> None:
        self.app.action_focus_next()

    @on(Button.Pressed, "#back")
    def back(self) -> None:
        self.action_leave()

    def action_leave(self) -> None:
        """Close the dialog, and keep the typed texts as a draft."""
        app, defaults = app_of(self), {field.name: field.default for field in self._form.fields}
        app.drafts.keep(self._form.title, self.typed, defaults, app.model.now())
        super().action_leave()

    def _draft_hint(self) -> str:
        """Return the key that fills in the draft of this form, and the time of the draft; empty if there is
        no draft.
        """
        app = app_of(self)
        draft = app.drafts.get(self._form.title)
        at = "" if draft is None else cells.clock(draft.closed_at, app.model.now())
        return f"^r draft of {at} · " if at else ""

    def action_restore_draft(self) -> None:
        """Fill in the texts of the draft of this form."""
        draft = app_of(self).drafts.get(self._form.title)
        for field in self.query(Input):
            if draft is not None:
                field.value = draft.typed.get(field.name or "", field.value)
                field.cursor_position = len(field.value)

    @on(Button.Pressed, "#do")
    def action_send(self) -> None:
        """Send the form to the controller. If a field has an error, move the focus to this field instead."""
        read, form, app = self._form.read(self.typed), self._form, app_of(self)
        request = read.request
        if read.wrong:
            wrong = next(field for field in self.query(Input) if field.name in read.wrong)
            wrong.focus()
            self._show_refusal(f"{wrong.name}: {read.wrong[wrong.name or '']}")
        elif app.model.stale:
            self._show_refusal("the connection is lost: no changes are possible now")
        elif request is not None and not self._sending:
            self._sending = True
            self._show_refusal("")
            self.check()
            shown = self._trial.shown_id

            def send(client: Client) -> Answer:
                with client.expecting(shown):
                    return form.send(client, request)

            app.requests.change(form.command(self.typed), send, lambda answer: self._answered(app, answer))

    def _answered(self, app: AppInterface, answer: Answer | Failure) -> None:
        """Close the dialog if the controller has accepted the form. If the controller has refused the form,
        show its error beside the field.
        """
        there, self._sending = self.is_attached, False
        if not isinstance(answer, (Refused, Unreachable)):
            app.drafts.drop(self._form.title)
            if there:
                self.dismiss(None)
            self._done(answer)
        elif there and effect_changed(answer):
            self._show_refusal(failure_text(answer))
            self._trial.try_again()
            self.check()
        elif there:
            name = self._form.name_of(answer.problem.where) if isinstance(answer, Refused) else ""
            if isinstance(answer, Refused) and name:
                self._refused[name] = answer.problem.message
                self._show_refusal(answer.problem.hint)
                next(field for field in self.query(Input) if field.name == name).focus()
            else:
                self._show_refusal(failure_text(answer))
            self.check()
        else:
            app.show_message(failure_text(answer), "bad")

    def _show_refusal(self, text: str) -> None:
        line = self.query_one(".refused", Static)
        line.update(printable(text, 400))
        line.display = bool(text)

    def action_copy(self) -> None:
        app_of(self).copy(self._form.command(self.typed))


def _names_line(names: Sequence[str], chosen: str) -> list[Piece]:
    """Return the line with the names that the user can choose. It begins with the chosen name, so that this
    name is visible also if the line is too short for all names.
    """
    if not names:
        return []
    place = names.index(chosen) if chosen in names else 0
    shown = [*names[place:], *names[:place]]
    return [
        ("^n ", "key"),
        *((f"{printable(name, 40)}  ", "strong" if name == chosen else "muted") for name in shown[:20]),
    ]
