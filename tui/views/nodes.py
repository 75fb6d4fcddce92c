"""All nodes, and the one under the cursor drawn out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from tui import actions, cells, glyphs
from tui.columns import Column
from tui.feed import Changes
from tui.listing import Listing
from tui.paint import Piece, bar
from tui.stage import stage
from tui.views.listed import Listed
from tui.views.view import bindings
from tui.widgets.nodecard import NodeCard
from wire.api.nodes import NodeView
from wire.spec import gpus_text
from wire.text import memory, plain
from wire.words import NodeState


class Nodes(Listed[str, NodeView]):
    """Every node with its GPUs."""

    NAME = actions.NODES
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.NODES)

    def __init__(self, listing: Listing[str, NodeView]) -> None:
        super().__init__(listing)
        self.card = NodeCard(lambda: listing.cursor)
        self.card.can_focus = False

    def compose(self) -> ComposeResult:
        """The list above, the node under the cursor below."""
        yield self.table
        yield self.card

    def columns(self) -> Sequence[Column[NodeView]]:
        """Eighty columns show what one needs to know; more room shows more."""
        return (
            Column("name", "NODE", 1, 14, lambda node: [(plain(node.name), _text(node))], 9, grow=2, most=30),
            Column("state", "STATE", 2, 9, lambda node: [cells.node_state(node)], 9),
            Column("map", "GPUS BY NUMA", 3, 21, cells.gpu_map, 20, grow=1, most=40),
            Column("gpus", "USED", 4, 7, lambda node: [(_used(node), "text")], 5, right=True),
            Column("jobs", "JOBS", 5, 4, lambda node: [_jobs(node)], 4, right=True),
            Column("cpus", "CPU", 6, 11, lambda node: _share(node.cpu_milli, node.cpu_free_milli)),
            Column("memory", "MEMORY", 7, 11, lambda node: _share(node.memory_mib, node.memory_free_mib)),
            Column("model", "MODEL", 8, 10, lambda node: [(_models(node), "muted")], grow=1, most=30),
            Column("why", "WHY", 9, 16, lambda node: [(plain(node.why), "warn")], grow=2, most=50),
            Column("ram", "RAM", 10, 6, lambda node: [(memory(node.memory_mib), "muted")], right=True),
            Column("version", "AGENT", 11, 8, lambda node: [(plain(node.version), "faint")]),
        )

    def nodes(self) -> list[NodeView]:
        """The node under the cursor."""
        return self.listing.chosen()

    def status(self) -> Sequence[Piece]:
        """What the signs mean."""
        kinds = ("busy", "share", "free", "sick")
        pieces: list[Piece] = []
        for kind in kinds:
            pieces += [(f"{glyphs.GPU[kind]} ", kind), (f"{kind}  ", "muted")]
        return [*pieces, (f"{glyphs.LEVELS} how hard it works", "muted")]

    def moved(self) -> None:
        """The card shows the node under the cursor."""
        super().moved()
        self.card.update()

    def on_resize(self) -> None:
        """The list takes what it needs, the card the rest; a low screen has room for the list only."""
        self._share_height()

    def changed(self, changes: Changes) -> None:
        """New rows, or other jobs on them."""
        if changes.nodes or changes.fresh:
            self._share_height()
            self.table.sync()
            self.card.update()
        elif changes.jobs:
            self.card.update()

    def _share_height(self) -> None:
        height, rows = self.size.height, len(self.listing) + 1
        list_height = min(rows, max(height // 2, height - 16))
        self.card.display = height - list_height >= 5
        self.table.styles.height = list_height if self.card.display else "1fr"

    def act_open(self) -> None:
        """Show the node under the cursor."""
        if self.listing.cursor is not None:
            stage(self).open_node(self.listing.cursor)


def _text(node: NodeView) -> str:
    return "text" if node.state is NodeState.UP else "muted"


def _used(node: NodeView) -> str:
    return f"{gpus_text(round(cells.gpus_used(node), 2))}/{len(node.gpus)}"


def _share(whole: int, free: int) -> Sequence[Piece]:
    used = 1 - free / max(1, whole)
    return [*bar(used, 5), (f" {used:>4.0%}", "muted")]


def _jobs(node: NodeView) -> Piece:
    return (str(len(node.jobs)), "muted") if node.jobs else ("·", "faint")


def _models(node: NodeView) -> str:
    return plain(" ".join(sorted({gpu.model.removeprefix("NVIDIA ") for gpu in node.gpus})))
