"""What all views have in common: a pane to move in, a filter, and something actions are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical

from tui.actions import actions_of
from tui.feed import Changes
from tui.paint import Piece
from tui.widgets.pane import Pane
from wire.api.jobs import JobView
from wire.api.nodes import NodeView


def bindings(view: str) -> list[BindingType]:
    """The keys of a view, from the registry."""
    return [
        Binding(",".join(action.keys), f"app.act('{action.name}')", action.title, show=False)
        for action in actions_of(view, read_only=False)
    ]


class View(Vertical):
    """One way of looking at the cluster."""

    NAME: ClassVar[str]

    @property
    def pane(self) -> Pane:
        """Where the keys for moving go."""
        raise NotImplementedError

    def title(self) -> str:
        """Its name on the trail."""
        return self.NAME.title()

    def note(self) -> Sequence[Piece]:
        """What stands at the right end of the trail: how the list is arranged."""
        return ()

    def status(self) -> Sequence[Piece]:
        """What stands on the status line while nothing else is to be said."""
        return ()

    def jobs(self) -> list[JobView]:
        """The jobs an action is about."""
        return []

    def nodes(self) -> list[NodeView]:
        """The nodes an action is about."""
        return []

    def subjects(self) -> Mapping[str, str]:
        """Everything else an action is about, by the words that stand for it in commands."""
        return {}

    def changed(self, changes: Changes) -> None:
        """The model has taken these changes."""

    def tick(self) -> None:
        """A second has passed."""

    def close(self) -> None:
        """The view is being left for good."""

    @property
    def filter_text(self) -> str:
        """The filter in force."""
        return ""

    def narrow(self, text: str) -> str:
        """Filter by this; says what is wrong with it, or nothing."""
        raise NotImplementedError

    def undo(self) -> bool:
        """Take back the filter or the marks, if there are any; False if there is nothing to take back."""
        if self.filter_text:
            self.narrow("")
            return True
        return False

    def act_down(self) -> None:
        """One line down."""
        self.pane.step(1)

    def act_up(self) -> None:
        """One line up."""
        self.pane.step(-1)

    def act_page_down(self) -> None:
        """A page down, keeping a line."""
        self.pane.step(max(1, self.pane.page - 1))

    def act_page_up(self) -> None:
        """A page up, keeping a line."""
        self.pane.step(-max(1, self.pane.page - 1))

    def act_top(self) -> None:
        """The first line."""
        self.pane.jump(0)

    def act_end(self) -> None:
        """The last line."""
        self.pane.jump(self.pane.total - 1)
