"""The view of one node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from tui import actions
from tui.app_interface import app_of
from tui.data.cluster_feed import Changes
from tui.look.paint import Piece
from tui.views.view import View, bindings
from tui.widgets.node_card import NodeCard
from wire.api.nodes import NodeView
from wire.text import printable


class NodeDetailsView(View):
    NAME = actions.NODE
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.NODE)

    def __init__(self, name: str) -> None:
        super().__init__()
        self._node = name
        self.card = NodeCard(lambda: name)

    def compose(self) -> ComposeResult:
        yield self.card

    @property
    def pane(self) -> NodeCard:
        return self.card

    def title(self) -> str:
        return printable(self._node, 24)

    def nodes(self) -> list[NodeView]:
        row = app_of(self).model.nodes.rows.get(self._node)
        return [row] if row else []

    def status(self) -> Sequence[Piece]:
        """Return a message for the status line if the node was removed; otherwise an empty text."""
        return [] if self.nodes() else [("this node was removed", "warn")]

    def changed(self, changes: Changes) -> None:
        if changes.nodes or changes.jobs or changes.fresh:
            self.card.update()

    def tick(self) -> None:
        self.card.update()
