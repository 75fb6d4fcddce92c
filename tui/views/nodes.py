"""The list of nodes. Below the list are the details of the node under the cursor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from tui import actions
from tui.app_interface import app_of
from tui.data.cluster_feed import Changes
from tui.data.lists.listing import Listing
from tui.data.load_history import LoadRequests, ShownRows
from tui.look import cells, glyphs
from tui.look.columns import ListColumn
from tui.look.styled_lines import Piece, bar
from tui.views.list_view import ListView
from tui.views.view import bindings
from tui.widgets.node_card import NodeCard
from wire.api.nodes import NodeView
from wire.job.spec import gpus_text
from wire.names import NodeState
from wire.text import memory, printable


class NodesView(ListView[str, NodeView]):
    """The list of all nodes and their GPUs, with details of one node below."""

    NAME = actions.NODES
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.NODES)

    def __init__(self, listing: Listing[str, NodeView]) -> None:
        super().__init__(listing)
        self.card = NodeCard(lambda: listing.cursor)
        self.card.can_focus = False
        self._loads = LoadRequests(lambda: app_of(self), self._shown_rows, self._show_loads)

    def compose(self) -> ComposeResult:
        yield self.table
        yield self.card

    def columns(self) -> Sequence[ListColumn[NodeView]]:
        return (
            ListColumn(
                "name", "NODE", 1, 14, lambda node: [(printable(node.name), _text(node))], 9, grow=2, most=30
            ),
            ListColumn("state", "STATE", 2, 10, lambda node: [cells.node_state(node)], 10),
            ListColumn("map", "GPUS BY NUMA", 3, 21, cells.gpu_map, 20, grow=1, most=40),
            ListColumn("load", "LOAD 10M", 6, cells.SPARKS, self._load),
            ListColumn("gpus", "USED", 4, 7, lambda node: [(_used(node), "text")], 5, right=True),
            ListColumn("jobs", "JOBS", 5, 4, lambda node: [_jobs(node)], 4, right=True),
            ListColumn("cpus", "CPU", 6, 11, lambda node: _share(node.cpu_milli, node.cpu_free_milli)),
            ListColumn("memory", "MEMORY", 7, 11, lambda node: _share(node.memory_mib, node.memory_free_mib)),
            ListColumn("model", "MODEL", 9, 10, lambda node: [(_models(node), "muted")], grow=1, most=30),
            ListColumn("why", "WHY", 8, 16, lambda node: [(printable(node.why), "warn")], grow=2, most=50),
            ListColumn("ram", "RAM", 10, 6, lambda node: [(memory(node.memory_mib), "muted")], right=True),
            ListColumn("version", "AGENT", 11, 8, lambda node: [(printable(node.version), "faint")]),
        )

    def tint(self, node: NodeView) -> str:
        """Return the style of the background of a row: red for a node in the state SUSPECT or DOWN."""
        return "failed-row" if node.state.away else ""

    def _load(self, node: NodeView) -> Sequence[Piece]:
        """Return the graph of the mean load of a node's GPUs."""
        return cells.load_graph(app_of(self).model.loads.of_node(node.name), bool(node.jobs))

    def _shown_rows(self) -> ShownRows:
        return ShownRows(nodes=tuple(self.table.visible_keys()))

    def _show_loads(self) -> None:
        self.table.refresh_changed()
        self.card.update()

    def tick(self) -> None:
        self._loads.tick()

    def nodes(self) -> list[NodeView]:
        return self.listing.chosen()

    def status(self) -> Sequence[Piece]:
        """Return the meaning of the GPU symbols, for the status line."""
        kinds = ("busy", "share", "free", "sick")
        pieces: list[Piece] = []
        for kind in kinds:
            pieces += [(f"{glyphs.GPU[kind]} ", kind), (f"{glyphs.GPU_WORD[kind]}  ", "muted")]
        return [*pieces, (f"{glyphs.LEVELS} GPU load", "muted")]

    def moved(self) -> None:
        super().moved()
        self.card.update()

    def on_resize(self) -> None:
        """Divide the height of the screen between the list and the details of the node below it. The list
        gets the lines that it needs, but at least half of the screen or 16 lines (the smaller number) stays
        for the details. If fewer than 5 lines would stay, only the list is shown.
        """
        self._share_height()

    def changed(self, changes: Changes) -> None:
        if changes.nodes or changes.fresh:
            self._share_height()
            self.table.sync()
            self.card.update()
            if changes.fresh:
                self.call_after_refresh(self._loads.tick)
        elif changes.jobs:
            self.card.update()

    def _share_height(self) -> None:
        height, rows = self.size.height, len(self.listing) + 1
        list_height = min(rows, max(height // 2, height - 16))
        self.card.display = height - list_height >= 5
        self.table.styles.height = list_height if self.card.display else "1fr"

    def act_open(self) -> None:
        if self.listing.cursor is not None:
            app_of(self).open_node(self.listing.cursor)


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
    return printable(" ".join(sorted({gpu.model.removeprefix("NVIDIA ") for gpu in node.gpus})))
