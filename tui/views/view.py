"""Base class of all views, such as the list of jobs or the details of a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical

from tui.actions import actions_of, keys_of
from tui.data.cluster_feed import Changes
from tui.look.styled_lines import Piece
from tui.widgets.scrolling_pane import Pane
from wire.api.jobs import JobView
from wire.api.nodes import NodeView


def bindings(view: str) -> list[BindingType]:
    """Return the key bindings of a view, from the table in tui.actions."""
    return [
        Binding(",".join(keys), f"app.act('{action.name}')", action.title, show=False)
        for action in actions_of(view, read_only=False)
        if (keys := keys_of(action, view))
    ]


class View(Vertical):
    """One screen of the terminal UI, such as the list of jobs, between the header and the footer."""

    NAME: ClassVar[str]

    @property
    def pane(self) -> Pane:
        """Return the widget that the arrow keys scroll."""
        raise NotImplementedError

    def title(self) -> str:
        """Return the name of the view, as shown at the top of the screen."""
        return self.NAME.title()

    def note(self, *, brief: bool = False) -> Sequence[Piece]:  # noqa: ARG002 - views without a list have none
        """Return the text to the right of the view's name, such as the filter and the sort order. With
        `brief`, the sort order is left out.
        """
        return ()

    def status(self) -> Sequence[Piece]:
        """Return the text for the status line while there is no message."""
        return ()

    def jobs(self) -> list[JobView]:
        """Return the jobs that an action of the user, such as cancel, changes. These are the marked jobs, or
        the job under the cursor.
        """
        return []

    def nodes(self) -> list[NodeView]:
        """Return the nodes that an action of the user, such as drain, changes: the marked nodes, the node
        under the cursor, or the node that the view shows.
        """
        return []

    def advised(self) -> list[str]:
        """Return the shell commands that the view suggests, for the menu of commands to copy."""
        return []

    def subjects(self) -> Mapping[str, str]:
        """Return the texts that replace placeholders in shell commands, by the name of the placeholder: for
        example, the name of the tenant under the cursor replaces {share}.
        """
        return {}

    def changed(self, changes: Changes) -> None:
        """Update the view. The application calls this after each change of the cluster."""

    def tick(self) -> None:
        """Update shown times, such as run times. The application calls this once a second."""

    def close(self) -> None:
        """Free the resources of the view. The application calls this when the view closes."""

    @property
    def filter_text(self) -> str:
        """Return the filter text of the view; empty if there is none."""
        return ""

    def narrow(self, text: str) -> str:
        """Set the filter. Return the error if the text is not a valid filter, otherwise an empty text."""
        raise NotImplementedError

    def undo(self) -> bool:
        """Remove the filter. Return False if the view has no filter."""
        if self.filter_text:
            self.narrow("")
            return True
        return False

    def act_down(self) -> None:
        self.pane.step(1)

    def act_up(self) -> None:
        self.pane.step(-1)

    def act_page_down(self) -> None:
        self.pane.step(max(1, self.pane.page - 1))

    def act_page_up(self) -> None:
        self.pane.step(-max(1, self.pane.page - 1))

    def act_top(self) -> None:
        self.pane.jump(0)

    def act_end(self) -> None:
        self.pane.jump(self.pane.total - 1)
