"""A menu with an optional search line: for all actions, sort orders, commands to copy, and themes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.fuzzy import FuzzySearch
from textual.strip import Strip
from textual.widgets import Input

from tui.app_interface import app_of
from tui.dialogs.dialog import Dialog
from tui.look import glyphs
from tui.look.styled_lines import Piece, both_ends, fit
from tui.widgets.scrolling_pane import Pane


@dataclass(frozen=True)
class MenuEntry:
    """One entry of a menu. `wrong` is the reason why the entry cannot be chosen now; empty if it can be
    chosen.
    """

    name: str
    title: str
    detail: str = ""
    key: str = ""
    wrong: str = ""


class MenuList(Pane):
    """Shows the entries that match the typed text, with a cursor."""

    def __init__(self, entries: Sequence[MenuEntry], at: str, on_pick: Callable[[], None]) -> None:
        super().__init__()
        self.entries = list(entries)
        self.index = next((place for place, entry in enumerate(entries) if entry.name == at), 0)
        self._wide = max((len(entry.title) for entry in entries), default=0)
        self._on_pick = on_pick

    @property
    def total(self) -> int:
        return len(self.entries)

    @property
    def entry(self) -> MenuEntry | None:
        return self.entries[self.index] if self.entries else None

    def show(self, entries: Sequence[MenuEntry]) -> None:
        """Show these entries, the best match first."""
        self.entries, self.index, self.top = list(entries), 0, 0
        self.refresh()

    def step(self, by: int) -> None:
        self.jump(self.index + by)

    def jump(self, index: int) -> None:
        """Move the cursor to the entry at this index, and scroll until the entry is visible."""
        self.index = max(0, min(index, self.total - 1))
        self.top = max(min(self.top, self.index), self.index - self.page + 1)
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        if (index := self.top + event.y) < self.total:
            self.jump(index)
            self._on_pick()

    def on_resize(self) -> None:
        self.jump(self.index)

    def paint_line(self, index: int, width: int) -> Strip:
        entry, here = self.entries[index], index == self.index
        title = "faint" if entry.wrong else "strong" if here else "text"
        left: list[Piece] = [
            (glyphs.CURSOR if here else " ", "edge"),
            (fit(f" {entry.title}", min(self._wide + 3, width)), title),
            (entry.wrong or entry.detail, "warn" if entry.wrong else "muted"),
        ]
        right: list[Piece] = [(f" {entry.key} ", "key")] if entry.key else []
        return app_of(self).paint.strip(both_ends(left, right, width), width, "cursor" if here else "")


class Menu(Dialog[str]):
    """A menu. Its result is the name of the chosen entry. With `search`, the user types text to find entries.
    Without `search`, the keys j and k also move the cursor.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,ctrl+n", "step(1)", show=False),
        Binding("up,ctrl+p", "step(-1)", show=False),
        Binding("pagedown,ctrl+d", "step(10)", show=False),
        Binding("pageup,ctrl+u", "step(-10)", show=False),
        Binding("j", "step(1)", show=False),
        Binding("k", "step(-1)", show=False),
        Binding("g,home", "step(-9999)", show=False),
        Binding("G,end", "step(9999)", show=False),
        Binding("enter", "pick", show=False),
        Binding("q", "leave", show=False),
    ]

    def __init__(
        self,
        title: str,
        entries: Sequence[MenuEntry],
        *,
        at: str = "",
        search: bool = False,
        extra: Callable[[str], MenuEntry | None] = lambda _: None,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__()
        self._title, self._entries = title, entries
        self._search, self._extra, self._on_step = search, extra, on_step
        self._choices = MenuList(entries, at, self.action_pick)

    def compose(self) -> ComposeResult:
        with Vertical(classes="box menu") as box:
            box.border_title = self._title
            if self._search:
                yield Input(placeholder="type to search", compact=True, select_on_focus=False)
            self._choices.styles.height = min(len(self._entries), 18)
            yield self._choices

    def on_mount(self) -> None:
        """Set the focus to the search line. If the menu has no search line, set the focus to the entries."""
        (self.query_one(Input) if self._search else self._choices).focus()

    @on(Input.Changed)
    def search(self, event: Input.Changed) -> None:
        """Show the entry that `extra` returns for the typed text, if any, and then the entries that match the
        text, the best match first.
        """
        extra = self._extra(event.value.strip())
        found = self._matching(event.value.strip())
        self._choices.show([*([extra] if extra else []), *found])

    def _matching(self, text: str) -> Sequence[MenuEntry]:
        if not text:
            return self._entries
        match = FuzzySearch().match
        scored = [
            (max(match(text, entry.title)[0] * 1.5, match(text, entry.detail)[0]), entry)
            for entry in self._entries
        ]
        return [entry for score, entry in sorted(scored, key=lambda pair: -pair[0]) if score > 0]

    @on(Input.Submitted)
    def submitted(self) -> None:
        self.action_pick()

    def action_step(self, by: int) -> None:
        self._choices.step(by)
        if self._choices.entry:
            self._on_step(self._choices.entry.name)

    def action_pick(self) -> None:
        """Close the menu with the entry under the cursor as its result. Do nothing if this entry cannot be
        chosen now.
        """
        entry = self._choices.entry
        if entry is not None and not entry.wrong:
            self.dismiss(entry.name)
