"""The view of one node."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from tui import actions
from tui.app_interface import app_of
from tui.data.cluster_feed import Changes
from tui.data.load_history import LoadRequests, ShownRows
from tui.look.styled_lines import Piece
from tui.views.view import View, bindings
from tui.widgets.node_card import NodeCard
from wire.api.nodes import NodeView
from wire.names import GpuHealth
from wire.text import printable


class NodeDetailsView(View):
    NAME = actions.NODE
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.NODE)

    def __init__(self, name: str) -> None:
        super().__init__()
        self._node = name
        self.card = NodeCard(lambda: name)
        self.card.selects_gpus = True
        self._loads = LoadRequests(lambda: app_of(self), lambda: ShownRows(nodes=(name,)), self.card.update)

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
        """Return the job and the health of the GPU under the cursor, or a message if the node was removed."""
        if not self.nodes():
            return [("this node was removed", "warn")]
        gpu = self.card.gpu
        if gpu is None:
            return []
        jobs = ", ".join(gpu.job_labels or map(str, gpu.jobs))
        return [
            (f"GPU {gpu.number}  ", "strong"),
            (f"job {printable(jobs, 80)}" if jobs else "no job", "text"),
            (f"  {gpu.health.value} {printable(gpu.why, 120)}", "muted"),
        ]

    def subjects(self) -> Mapping[str, str]:
        """Return the name of the GPU under the cursor, for shell commands."""
        gpu = self.card.gpu
        return {} if gpu is None else {"gpu": shlex.quote(printable(f"{self._node}:{gpu.number}"))}

    def act_open(self) -> None:
        """Open the job on the GPU under the cursor."""
        gpu = self.card.gpu
        if gpu is not None and gpu.jobs:
            app_of(self).open_job(gpu.jobs[0])
        else:
            app_of(self).show_message("no job is on this GPU", "warn")

    def act_cordon_gpu(self) -> None:
        gpu = self.card.gpu
        if gpu is not None and self.nodes():
            app_of(self).cordon_gpu(self.nodes()[0], gpu)

    def act_resume(self) -> None:
        """Resume the GPU under the cursor if the GPU is out of service; otherwise resume the node."""
        gpu = self.card.gpu
        sick = gpu is not None and gpu.health is not GpuHealth.OK
        app_of(self).resume(self.nodes(), gpu if sick else None)

    def changed(self, changes: Changes) -> None:
        if changes.nodes or changes.jobs or changes.fresh:
            self.card.update()
        if changes.fresh:
            self.call_after_refresh(self._loads.tick)

    def tick(self) -> None:
        self._loads.tick()
        self.card.update()
