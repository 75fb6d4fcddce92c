"""Base class of all views: a scrolling pane, a filter, and the rows to which actions apply."""

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
    """A view between the header and the footer."""

    NAME: ClassVar[str]

    @property
    def pane(self) -> Pane:
        """The pane that the movement keys scroll."""
        raise NotImplementedError

    def title(self) -> str:
        """The name of the view in the trail."""
        return self.NAME.title()

    def note(self, *, brief: bool = False) -> Sequence[Piece]:  # noqa: ARG002 - views without a list have none
        """The text at the right end of the trail: filter and sort order. If `brief` is true, the sort order
        is left out.
        """
        return ()

    def status(self) -> Sequence[Piece]:
        """The text of the status line while no message is shown."""
        return ()

    def jobs(self) -> list[JobView]:
        """The jobs to which an action applies."""
        return []

    def nodes(self) -> list[NodeView]:
        """The nodes to which an action applies."""
        return []

    def advised(self) -> list[str]:
        """The shell commands that the view advises."""
        return []

    def subjects(self) -> Mapping[str, str]:
        """Texts for the other placeholders of the commands, by placeholder."""
        return {}

    def changed(self, changes: Changes) -> None:
        """Called when the model has changed."""

    def tick(self) -> None:
        """Called once a second."""

    def close(self) -> None:
        """Called when the view is closed."""

    @property
    def filter_text(self) -> str:
        """The filter text."""
        return ""

    def narrow(self, text: str) -> str:
        """Set the filter. Returns the error of the filter text, or an empty text."""
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
        """Scroll down by a page, less one line."""
        self.pane.step(max(1, self.pane.page - 1))

    def act_page_up(self) -> None:
        """Scroll up by a page, less one line."""
        self.pane.step(-max(1, self.pane.page - 1))

    def act_top(self) -> None:
        self.pane.jump(0)

    def act_end(self) -> None:
        self.pane.jump(self.pane.total - 1)
