"""Base of all views: a pane to scroll, a filter, and the subjects of actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical

from tui.actions import actions_of
from tui.data.cluster_feed import Changes
from tui.look.paint import Piece
from tui.widgets.pane import Pane
from wire.api.jobs import JobView
from wire.api.nodes import NodeView


def bindings(view: str) -> list[BindingType]:
    """The key bindings of a view, from tui.actions."""
    return [
        Binding(",".join(action.keys), f"app.act('{action.name}')", action.title, show=False)
        for action in actions_of(view, read_only=False)
    ]


class View(Vertical):
    """A view of the cluster."""

    NAME: ClassVar[str]

    @property
    def pane(self) -> Pane:
        """The pane that the movement keys scroll."""
        raise NotImplementedError

    def title(self) -> str:
        """Its name in the trail."""
        return self.NAME.title()

    def note(self, *, brief: bool = False) -> Sequence[Piece]:  # noqa: ARG002 - views without a list have none
        """The right end of the trail: filter and order; with `brief` without the order."""
        return ()

    def status(self) -> Sequence[Piece]:
        """The status line when there is no message."""
        return ()

    def jobs(self) -> list[JobView]:
        """The jobs that an action is about."""
        return []

    def nodes(self) -> list[NodeView]:
        """The nodes that an action is about."""
        return []

    def advised(self) -> list[str]:
        """Shell commands that the view advises."""
        return []

    def subjects(self) -> Mapping[str, str]:
        """Other subjects of actions, by their placeholders in commands."""
        return {}

    def changed(self, changes: Changes) -> None:
        """The model has changed."""

    def tick(self) -> None:
        """A second has passed."""

    def close(self) -> None:
        """The view is closed."""

    @property
    def filter_text(self) -> str:
        """The filter text."""
        return ""

    def narrow(self, text: str) -> str:
        """Set the filter; returns its error, or an empty text."""
        raise NotImplementedError

    def undo(self) -> bool:
        """Remove the filter or the marks; False if there are none."""
        if self.filter_text:
            self.narrow("")
            return True
        return False

    def act_down(self) -> None:
        self.pane.step(1)

    def act_up(self) -> None:
        self.pane.step(-1)

    def act_page_down(self) -> None:
        """A page down, with one line of overlap."""
        self.pane.step(max(1, self.pane.page - 1))

    def act_page_up(self) -> None:
        """A page up, with one line of overlap."""
        self.pane.step(-max(1, self.pane.page - 1))

    def act_top(self) -> None:
        self.pane.jump(0)

    def act_end(self) -> None:
        self.pane.jump(self.pane.total - 1)
