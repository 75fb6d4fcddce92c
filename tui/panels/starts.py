"""Lists the next starts of the plan beside the running jobs in the order of their latest ends."""

from __future__ import annotations

from tui.data.model import ClusterModel
from tui.look.styled_lines import Piece, beside
from tui.panels.graphs import graph_lines
from tui.panels.jobs import job_lines
from tui.pulse.lists import next_starts
from wire.api.forecasts import Plan
from wire.names import JobState

LEAST, MOST, WIDE = 5, 24, 180
"""The least and the greatest height of the lists in lines, and the least width for two lists."""


def plan_lines(plan: Plan | None, model: ClusterModel, width: int, height: int) -> list[list[Piece]]:
    """Return lines for the free space below the plan, at most `height` lines: the next starts, on a wide
    screen also the running jobs, and the graphs of the cluster.
    """
    size = min(MOST, height - 1)
    if plan is None or size < LEAST:
        return []
    half = width // 2 if width >= WIDE else width
    starts = [list(row.pieces) for row in next_starts(plan, model.now(), half - 1, size)]
    panels: list[tuple[list[list[Piece]], int]] = [(starts, half)]
    if half < width:
        title = "running jobs by latest end"
        running = job_lines(title, lambda job: job.state is not JobState.QUEUED, model, width - half, size)
        panels.append((running, width - half))
    lines: list[list[Piece]] = [[], *beside(panels)]
    return [*lines, *graph_lines(model, width, height - len(lines))]
