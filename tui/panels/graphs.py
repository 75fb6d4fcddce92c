"""Draws the graphs of held GPUs and of waiting jobs below a short list."""

from __future__ import annotations

from typing import Final

from tui.data.model import ClusterModel
from tui.look.styled_lines import Piece, beside
from tui.pulse import figures
from tui.pulse.figures import GraphTime
from tui.pulse.history import RANGES_S

LEAST, MOST, WIDE = 4, 12, 100
"""The least and the greatest height of a graph in lines, and the least width for two graphs."""
FRAME: Final = 3
"""An empty line, the title of a graph and its times."""


def graph_lines(model: ClusterModel, width: int, height: int) -> list[list[Piece]]:
    """Return the graphs of the last hour, or of the last day if there are older samples, at most `height`
    lines. Return no lines if `height` is too low.
    """
    size = min(MOST, height - FRAME)
    minutes = model.history.minutes
    if size < LEAST or not minutes:
        return []
    is_old = minutes[-1].at - minutes[0].at > RANGES_S[1]
    times = GraphTime(model.now(), RANGES_S[2] if is_old else RANGES_S[1])
    half = width // 2 if width >= WIDE else width
    gpus = [row.pieces for row in figures.gpu_graph(model.history, times, half - 1, size)]
    if half == width:
        return [[], *map(list, gpus)]
    queue = [row.pieces for row in figures.queue_graph(model.history, times, width - half, size)]
    return [[], *beside([(gpus, half), (queue, width - half)])]
