"""One node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from tui import actions
from tui.feed import Changes
from tui.paint import Piece
from tui.stage import stage
from tui.views.view import View, bindings
from tui.widgets.nodecard import NodeCard
from wire.api.nodes import NodeView
from wire.text import plain


class Node(View):
    """A node's GPUs, and who holds them."""

    NAME = actions.NODE
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.NODE)

    def __init__(self, name: str) -> None:
        super().__init__()
        self._node = name
        self.card = NodeCard(lambda: name)

    def compose(self) -> ComposeResult:
        """The card fills the view."""
        yield self.card

    @property
    def pane(self) -> NodeCard:
        """The card."""
        return self.card

    def title(self) -> str:
        """The node's name."""
        return plain(self._node, 24)

    def nodes(self) -> list[NodeView]:
        """This one."""
        row = stage(self).model.nodes.rows.get(self._node)
        return [row] if row else []

    def status(self) -> Sequence[Piece]:
        """A node can go while it is looked at."""
        return [] if self.nodes() else [("this node is gone", "warn")]

    def changed(self, changes: Changes) -> None:
        """Draw it anew."""
        if changes.nodes or changes.jobs or changes.fresh:
            self.card.update()

    def tick(self) -> None:
        """How long it has been so."""
        self.card.update()
