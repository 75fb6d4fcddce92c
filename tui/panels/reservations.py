"""Shows which running jobs may still run when a reservation begins, and the free GPUs over time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from tui.data.model import ClusterModel
from tui.look import cells
from tui.look.graphs import area_graph
from tui.look.styled_lines import Piece, fit, heading
from tui.plan.timeline import Timeline
from wire.api.jobs import JobView
from wire.api.policy.reservations import ReservationView
from wire.job.spec import gpus_text
from wire.names import GpuHealth, NodeState
from wire.text import counted, duration, printable

LEAST: Final = 5
"""The least height of the list of jobs that may run into a reservation, in lines, if it does not fit."""
MOST_GRAPH: Final = 20
"""The greatest height of the graph of free GPUs, in lines."""


def run_until(job: JobView) -> float:
    """Return the time until which a running job may use its nodes; infinity without a time limit."""
    if not job.time_limit_s:
        return math.inf
    return (job.started_at or job.submitted_at) + job.time_limit_s


def occurrences(row: ReservationView, until: float) -> Iterator[tuple[float, float]]:
    """Yield the begin and the end of a reservation and of its repetitions that begin before `until`."""
    begin, end, every = row.starts_at, row.ends_at, row.spec.every_s
    while begin < until:
        yield begin, end
        if not every:
            return
        begin, end = begin + every, end + every


def overlap_lines(
    reservations: Iterable[ReservationView], model: ClusterModel, width: int, height: int
) -> list[list[Piece]]:
    """Return a panel with the jobs that may still run when a reservation begins, at most `height` lines. For
    each reservation that has not begun there is a line, followed by a line for each such job.
    """
    now = model.now()
    lines: list[list[Piece]] = []
    for row in sorted(reservations, key=lambda row: row.starts_at):
        if row.starts_at <= now:
            continue
        nodes = set(row.nodes)
        jobs = [
            job
            for job in model.running.values()
            if run_until(job) > row.starts_at and any(held.node in nodes for held in job.held)
        ]
        lines.append(
            [
                (f" {fit(printable(row.spec.name), 16)} ", "held"),
                (f"{fit(cells.clock(row.starts_at, now), 12)} ", "text"),
                (f"in {duration(row.starts_at - now):<8}", "muted"),
                (f" {counted(len(row.nodes), 'node')}: {printable(', '.join(row.nodes), 40)}  ", "accent"),
                (f"{counted(len(jobs), 'job')} may still run", "warn")
                if jobs
                else ("no job runs into it", "good"),
            ]
        )
        jobs.sort(key=lambda job: (-run_until(job), job.id))
        lines += [_overlap(job, row.starts_at, now) for job in jobs]
    if not lines or height < min(len(lines) + 2, LEAST):
        return []
    shown = [[], heading([("jobs that may run into a reservation", "strong")], width), *lines]
    if len(shown) > height:
        more = len(shown) - height + 1
        shown = [*shown[: height - 1], [(f" and {more:,} more lines", "faint")]]
    return shown


def _overlap(job: JobView, begin: float, now: float) -> list[Piece]:
    """Return a line about a job that may still run at the time `begin`."""
    end = run_until(job)
    late = (
        "no time limit"
        if math.isinf(end)
        else f"ends by {cells.clock(end, now)}, {duration(end - begin)} too late"
    )
    return [
        (f"   {fit(printable(job.label), 8)} ", "accent"),
        (f"{fit(printable(job.name), 24)} {fit(printable(job.user), 12)} ", "text"),
        (f"{gpus_text(job.gpus) if job.gpus else 'no':>5} GPUs  ", "text"),
        (f"{late}", "bad" if math.isinf(end) else "warn"),
        (f"  on {printable(', '.join(held.node for held in job.held), 60)}", "muted"),
    ]


def free_graph(
    reservations: Sequence[ReservationView],
    model: ClusterModel,
    timeline: Timeline,
    label_width: int,
    height: int,
) -> list[list[Piece]]:
    """Return the graph of the free GPUs over the time of a chart, below the cells of this chart, at most
    `height` lines. Return no lines if `height` is below 4 lines.
    """
    size = min(MOST_GRAPH, height - 2)
    if size < 2 or not timeline.width:
        return []
    values = free_over_time(reservations, model, timeline)
    known = [value for value in values if value is not None]
    most = max([1.0, *known])
    width = label_width + timeline.width
    title: list[Piece] = [
        ("free GPUs", "strong"),
        (" if all jobs use their time limits, without reserved nodes", "muted"),
    ]
    lines: list[list[Piece]] = [[], heading(title, width)]
    doubled = [value for value in values for _ in range(2)]
    for number, line in enumerate(area_graph(doubled, doubled, size, most, ("good", "good"))):
        scale = most if number == 0 else 0.0 if number == size - 1 else None
        text = "│" if scale is None else f"{gpus_text(round(scale, 1))}┤"
        lines.append([(text.rjust(label_width - 1) + " " * (label_width > 0), "faint"), *line])
    return lines


def free_over_time(
    reservations: Sequence[ReservationView], model: ClusterModel, timeline: Timeline
) -> list[float | None]:
    """Return the free GPUs in each cell of a chart; None before the present time.

    1. A node in service has its healthy GPUs. A running job uses its GPUs until its time limit, so the free
       GPUs of a node change in the cells in which jobs end.
    2. A node has no free GPU while it is reserved.
    3. The sum over all nodes is computed from the changes in each cell.

    Cost: one step for each running job, and for each cell of each reserved node.
    """
    used: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for job in model.running.values():
        for held in job.held:
            used[held.node].append((run_until(job), sum(share.milli for share in held.gpus) / 1000))
    taken: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in reservations:
        for name in row.nodes:
            taken[name] += occurrences(row, timeline.end)
    changes = [0.0] * timeline.width
    for node in model.nodes.rows.values():
        if node.state is not NodeState.DRAINED and not node.state.away:
            healthy = float(sum(gpu.health is GpuHealth.OK for gpu in node.gpus))
            for cell, change in _changes(healthy, used[node.name], taken[node.name], timeline):
                changes[cell] += change
    first = timeline.column(model.now())
    return [None if cell < first else free for cell, free in enumerate(accumulate(changes))]


def _changes(
    healthy: float,
    ends: Iterable[tuple[float, float]],
    taken: Sequence[tuple[float, float]],
    timeline: Timeline,
) -> Iterator[tuple[int, float]]:
    """Yield the cells in which the number of free GPUs of a node changes, and the changes. `ends` has the
    latest end and the GPUs of each running job, and `taken` the begin and the end of each reservation.
    """
    ends = sorted(ends)
    left = healthy - sum(gpus for _, gpus in ends)
    free = {0: max(0.0, left)}
    for end, gpus in ends:
        left += gpus
        if end < timeline.end:
            free[max(0, timeline.column(end))] = max(0.0, left)
    shown = 0.0
    value = 0.0
    for cell in range(timeline.width) if taken else sorted(free):
        value = free.get(cell, value)
        at = timeline.begin + (cell + 0.5) * timeline.cell_s
        now_free = 0.0 if any(begin <= at < end for begin, end in taken) else value
        if now_free != shown:
            yield cell, now_free - shown
            shown = now_free
