"""The help of a view, which lists all keys of the view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from tui.actions import EVERYWHERE, LISTS, ScreenAction, actions_of, keys_of, shown_command, shown_key
from tui.dialogs.dialog import Dialog
from tui.look.styled_lines import Piece, fit
from tui.widgets.lines_pane import LinesPane

_FILTERS = (
    ("train", "a regex, searched in all texts of the row"),
    ("!done", "rows that do not match"),
    ("user:alice", "in one field; a prefix of its name is enough: us:alice"),
    ("gpus:>=4", "compares numbers"),
    ("state:run !node:n1", "all terms must match"),
)


def help_lines(view: str, read_only: bool, fields: Sequence[str] = ()) -> list[list[Piece]]:
    """Return the lines of the help. `fields` has the names of the fields on which the list can be
    filtered.
    """
    actions = actions_of(view, read_only)
    here = [action for action in actions if action.views != EVERYWHERE and not action.changes]
    lines = _section(f"In {view}", here, view)
    lines += _section("Changes (capital letters)", [action for action in actions if action.changes], view)
    common = [action for action in actions if action.views == EVERYWHERE and not action.changes]
    lines += _section("Everywhere", common, view)
    if view in LISTS:
        lines += [[], [(" Filters", "sorted")]]
        lines += [
            [("   ", "text"), (fit(example, 22), "accent"), (text, "muted")] for example, text in _FILTERS
        ]
        lines.append([("   ", "text"), (fit("fields", 22), "muted"), (", ".join(fields), "muted")])
    return lines[1:]


def _section(title: str, actions: Sequence[ScreenAction], view: str) -> list[list[Piece]]:
    if not actions:
        return []
    lines: list[list[Piece]] = [[], [(f" {title}", "sorted")]]
    for action in actions:
        keys = " ".join(shown_key(key) for key in keys_of(action, view))
        lines.append(
            [("   ", "text"), (fit(keys, 15), "key"), (fit(action.title, 15), "text"), (action.help, "muted")]
        )
        if action.command:
            lines.append([(" " * 32, "text"), (f"$ {shown_command(action)}", "faint")])
    return lines


class HelpDialog(Dialog[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "step(1)", show=False),
        Binding("k,up", "step(-1)", show=False),
        Binding("space,pagedown,ctrl+d,ctrl+f", "step(12)", show=False),
        Binding("pageup,ctrl+u,ctrl+b", "step(-12)", show=False),
        Binding("g,home", "step(-9999)", show=False),
        Binding("G,end", "step(9999)", show=False),
        Binding("q,question_mark,f1,enter", "leave", show=False),
    ]

    def __init__(self, view: str, lines: list[list[Piece]]) -> None:
        super().__init__()
        self._view, self._lines = view, lines

    def compose(self) -> ComposeResult:
        with Vertical(classes="box help") as box:
            box.border_title = f"Help: {self._view}"
            box.border_subtitle = "esc closes"
            self._text = LinesPane(self._lines)
            yield self._text

    def on_mount(self) -> None:
        """Set the focus to the text, so that the arrow keys scroll the text."""
        self._text.focus()

    def action_step(self, by: int) -> None:
        self._text.step(by)
