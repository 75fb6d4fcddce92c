"""Arranges the panels of the view Pulse for the size of the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tui.data.model import ClusterModel
from tui.pulse import figures, lists
from tui.pulse.ends import failures, last_ends
from tui.pulse.figures import GraphTime
from tui.pulse.gpu_wall import GpuWall
from tui.pulse.panel import BETWEEN, Block, Jump, Panel, PanelRow, side_by_side, title
from wire.api.forecasts import Plan
from wire.api.jobs import JobView
from wire.api.policy.shares import ShareView
from wire.api.service.cluster import EventView
from wire.names import WHOLE_GPU, JobState

WIDE: Final = 100
"""Panels are beside one another on a screen of at least this many cells, and below one another on a narrower
screen.
"""
LEAST_LIST: Final = 4
"""The least number of rows of the lists at the bottom."""
WITH_JOBS: Final = 60
"""The wall of GPUs names the jobs of each node if it is at least this number of cells wide."""
RECENT_EVENTS: Final = 60
"""The number of newest events from which the shown events are chosen."""


@dataclass
class PulseData:
    """Data for the panels that is not in the event stream, and is requested from the controller."""

    plan: Plan | None = None
    shares: Sequence[ShareView] = ()
    wall: GpuWall = field(default_factory=GpuWall)


def arrange(
    model: ClusterModel, data: PulseData, times: GraphTime, width: int, height: int
) -> list[list[Block]]:
    """Return the lines of the view for a screen of `width` x `height` cells.

    On a wide screen, from the top: two graphs; four panels with figures; the wall of GPUs beside the alarms;
    three lists. The graphs get about a fifth of the height, and the lists get the lines that are left. On a
    narrow screen all panels are below one another, so that the view scrolls.
    """
    return _wide(model, data, times, width, height) if width >= WIDE else _narrow(model, data, times, width)


def _wide(
    model: ClusterModel, data: PulseData, times: GraphTime, width: int, height: int
) -> list[list[Block]]:
    history = model.history
    half = width // 2
    graph = max(3, min(12, height // 5))
    lines = side_by_side(
        [
            (figures.gpu_graph(history, times, half - BETWEEN, graph), half),
            (figures.queue_graph(history, times, width - half, graph), width - half),
        ]
    )
    quarter = width // 4
    last = width - 3 * quarter
    lines += side_by_side(
        [
            (figures.waits(history, times, quarter - BETWEEN), quarter),
            (figures.throughput(history, times, quarter - BETWEEN), quarter),
            (figures.power(history, times, quarter - BETWEEN), quarter),
            (_fragmentation(model, times, last), last),
        ]
    )
    left = height - len(lines)
    alarms_width = max(40, width * 2 // 5)
    wall_width = width - alarms_width
    wall = _wall(model, data, wall_width - BETWEEN, max(4, left - LEAST_LIST), left // 4)
    wanted = max(len(wall), min(1 + max(1, len(model.alarms)), 9))
    middle = max(4, min(wanted, left - LEAST_LIST))
    now = times.now
    lines += side_by_side(
        [(wall, wall_width), (lists.alarm_list(model.alarms, now, alarms_width, middle), alarms_width)],
        max(middle, len(wall)),
    )
    bottom = max(LEAST_LIST, height - len(lines))
    third = width // 3
    last = width - 2 * third
    running = model.running.values()
    held = lists.holders(running, data.shares, model.gpus, third - BETWEEN, bottom)
    starts = lists.next_starts(data.plan, now, third - BETWEEN, bottom)
    ended = _last_ended(model)
    lines += side_by_side(
        [
            (_above(held, lambda left: last_ends(ended, now, third - BETWEEN, left), bottom), third),
            (_above(starts, lambda left: failures(ended, now, third - BETWEEN, left), bottom), third),
            (lists.last_events(_newest(model), last, bottom), last),
        ],
        bottom,
    )
    return lines


def _above(panel: Panel, below: Callable[[int], Panel], height: int) -> Panel:
    """Return a panel, and below it another one if at least LEAST_LIST rows are free. `below` returns the
    other panel for a number of rows.
    """
    left = height - len(panel) - 1
    return [*panel, PanelRow(), *below(left)] if left >= LEAST_LIST else panel


def _last_ended(model: ClusterModel) -> list[JobView]:
    """Return the jobs that have ended last, newest first."""
    rows = (model.jobs.rows.get(job) for job in reversed(model.last_ends))
    ended = [row for row in rows if row is not None and row.state.terminal]
    return sorted(ended, key=lambda job: (-(job.ended_at or 0.0), job.id))


def _narrow(model: ClusterModel, data: PulseData, times: GraphTime, width: int) -> list[list[Block]]:
    history, now = model.history, times.now
    half = width // 2
    panels: list[Panel] = [
        figures.gpu_graph(history, times, width, 4),
        lists.alarm_list(model.alarms, now, width, 6),
        _wall(model, data, width, 40, 0),
        figures.queue_graph(history, times, width, 3),
    ]
    after: list[Panel] = [
        lists.next_starts(data.plan, now, width, 6),
        lists.holders(model.running.values(), data.shares, model.gpus, width, 6),
        lists.last_events(_newest(model), width, 8),
        last_ends(_last_ended(model), now, width, 8),
    ]
    return [
        *_stacked(panels, width),
        *side_by_side(
            [
                (figures.waits(history, times, half - BETWEEN), half),
                (figures.throughput(history, times, width - half), width - half),
            ]
        ),
        *side_by_side(
            [
                (figures.power(history, times, half - BETWEEN), half),
                (_fragmentation(model, times, width - half), width - half),
            ]
        ),
        *_stacked(after, width),
    ]


def _stacked(panels: Iterable[Panel], width: int) -> list[list[Block]]:
    return [[(row, width)] for panel in panels for row in panel]


def _wall(model: ClusterModel, data: PulseData, width: int, height: int, most: int) -> list[PanelRow]:
    """Return the wall of GPUs, at most `height` rows high. If the cluster has at most `most` nodes, each node
    has a row, which also names the jobs of the node.
    """
    heading = [("every GPU ", "strong"), ("(height and colour = load, ✗ out of service, ░ free)", "faint")]
    if len(model.nodes) <= most and width >= WITH_JOBS:
        rows = data.wall.rows_with_jobs(model.nodes, model.jobs.rows, width)
    else:
        rows = data.wall.rows(model.nodes, width, height - 1)
    return [title(heading, width, Jump("view", "nodes")), *rows]


def _fragmentation(model: ClusterModel, times: GraphTime, width: int) -> list[PanelRow]:
    nodes = [node for node in model.nodes.rows.values() if node.gpus]
    whole = sum(all(gpu.free_milli == WHOLE_GPU for gpu in node.gpus) for node in nodes)
    largest = max((len(node.gpus) for node in nodes), default=0)
    wide = sum(
        job.state is JobState.QUEUED and job.gpus >= largest * max(1, job.nodes)
        for job in model.waiting.values()
    )
    return figures.free_gpus(model.history, times, width, wide if largest else 0, whole)


def _newest(model: ClusterModel) -> list[EventView]:
    """Return the newest RECENT_EVENTS events, newest first."""
    events = model.events
    numbers = sorted(events.rows)[-RECENT_EVENTS:]
    return [events.rows[number] for number in reversed(numbers)]
