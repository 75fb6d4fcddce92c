"""Draws every GPU of the cluster as one character: its load as height and colour, and its health."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

from tui.look import cells
from tui.look.graphs import heat
from tui.look.styled_lines import Piece, fit, length, level
from tui.pulse.panel import Jump, PanelRow
from wire.api.jobs import JobView
from wire.api.nodes import GpuView, NodeView
from wire.job.spec import gpus_text
from wire.text import printable

FREE: Final = "░"
SICK: Final = "✗"
LABELS: Final = ("rack", "topology.kubernetes.io/rack", "zone")
"""The node labels that can name the rack of a node. The first of these labels that the node has is used."""


class GpuWall:
    """Draws every GPU as one character, in one or more rows for each rack. The characters of a node are kept
    until the node changes, so that each second only the changed nodes are drawn again.
    """

    def __init__(self) -> None:
        self._drawn: dict[str, tuple[NodeView, list[Piece]]] = {}

    def rows(self, nodes: Iterable[NodeView], width: int, height: int) -> list[PanelRow]:
        """Return the rows of the wall. If the nodes with their names need more than `height` rows, the names
        are left out.
        """
        nodes = list(nodes)
        named = self._lines(nodes, width, names=True)
        return named if len(named) <= height else self._lines(nodes, width, names=False)

    def rows_with_jobs(
        self, nodes: Iterable[NodeView], jobs: Mapping[int, JobView], width: int
    ) -> list[PanelRow]:
        """Return one row for each node: its name, its GPUs, the number of its held GPUs, and as many of its
        jobs as fit. `jobs` has the jobs by id.
        """
        nodes = list(nodes)
        longest = min(16, max((len(node.name) for node in nodes), default=0))
        widest = max((_size(self._cells(node)) for node in nodes), default=0)
        rows = []
        for node in nodes:
            state, style = cells.node_state(node)
            drawn = self._cells(node)
            pieces: list[Piece] = [
                (f" {fit(printable(node.name), longest)} ", "text"),
                (f"{fit(state, 10)} ", style),
                *drawn,
                (" " * (widest - _size(drawn) + 1), "text"),
                (f"{gpus_text(round(cells.gpus_used(node), 2)):>5}/{len(node.gpus)}  ", "muted"),
            ]
            room = width - length(pieces)
            rows.append(PanelRow([*pieces, *_job_names(node, jobs, room)], Jump("node", node.name)))
        return rows

    def _lines(self, nodes: Sequence[NodeView], width: int, *, names: bool) -> list[PanelRow]:
        lines: list[PanelRow] = []
        racked = any(_rack(node) for node in nodes)
        head = min(10, max((len(_rack(node)) for node in nodes), default=0)) + 2 if racked else 1
        longest = min(14, max((len(node.name) for node in nodes), default=0)) if names else 0
        for rack, group in groupby(nodes, key=_rack):
            members = list(group)
            widest = max(_size(self._cells(node)) for node in members)
            each = widest + 2 + (longest + 1 if names else 0)
            in_a_row = max(1, (width - head) // each)
            for at in range(0, len(members), in_a_row):
                shown = members[at : at + in_a_row]
                label = fit(f" {printable(rack)}" if racked and at == 0 else "", head)
                pieces: list[Piece] = [(label, "muted")]
                for node in shown:
                    if names:
                        style = "muted" if node.state.value == "up" else node.state.value
                        pieces.append((fit(printable(node.name), longest) + " ", style))
                    drawn = self._cells(node)
                    pieces += [*drawn, (" " * (widest - _size(drawn) + 2), "text")]
                lines.append(
                    PanelRow(pieces, Jump("node", shown[0].name) if names else Jump("view", "nodes"))
                )
        return lines

    def _cells(self, node: NodeView) -> list[Piece]:
        known = self._drawn.get(node.name)
        if known is None or known[0] is not node:
            known = self._drawn[node.name] = (node, _draw(node))
        return known[1]


def _job_names(node: NodeView, jobs: Mapping[int, JobView], width: int) -> list[Piece]:
    """Return the ids and names of the jobs of a node, as many as fit whole, and the number of the others."""
    pieces: list[Piece] = []
    for number, job in enumerate(node.jobs):
        row = jobs.get(job)
        label = printable(row.label) if row is not None else str(job)
        name = f" {printable(row.name, 20)}  " if row is not None else "  "
        left = len(node.jobs) - number
        if length([*pieces, (label + name, "text")]) + (5 if left > 1 else 0) > width:
            return [*pieces, (f"+{left}", "muted")]
        pieces += [(label, "accent"), (name, "text")]
    return pieces


def _draw(node: NodeView) -> list[Piece]:
    """Return one character for each GPU of a node, with a space between two NUMA nodes; the text "no GPUs"
    for a node without GPUs.
    """
    pieces: list[Piece] = []
    for _, group in groupby(cells.by_numa(node), key=lambda gpu: gpu.numa):
        if pieces:
            pieces.append((" ", "text"))
        pieces += [_cell(gpu, away=node.state.away) for gpu in group]
    return pieces or [("no GPUs", "faint")]


def _cell(gpu: GpuView, *, away: bool) -> Piece:
    if cells.gpu_kind(gpu) == "sick":
        return (SICK, "sick")
    if away:
        return ("?", "faint")
    if not gpu.jobs and not gpu.utilisation:
        return (FREE, "faint")
    return (level(gpu.utilisation), heat(gpu.utilisation))


def _rack(node: NodeView) -> str:
    return next((node.labels[name] for name in LABELS if name in node.labels), "")


def _size(pieces: Sequence[Piece]) -> int:
    return sum(len(text) for text, _ in pieces)
