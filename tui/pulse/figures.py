"""Draws the panels of the view Pulse that show figures over time: GPUs, queue, waits, throughput, power and
free GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tui.look.graphs import Values, area_graph, round_up, sparkline
from tui.look.styled_lines import Piece, fit
from tui.pulse.history import PulseHistory
from tui.pulse.panel import Jump, PanelRow, title
from wire.api.service.cluster import PulseSample
from wire.text import duration

AXIS, LEGEND = 6, 11
"""The widths, in terminal cells, of the scale to the left and of the legend to the right of a graph."""
HOUR_S: Final = 3_600.0
MARKS: Final = 4
"""The greatest number of times on the line below a graph, besides "now"."""

Value = Callable[[PulseSample], float | None]


@dataclass(frozen=True)
class GraphTime:
    """The time that the graphs show: the last `range_s` seconds before `now`."""

    now: float
    range_s: float

    def axis(self, width: int) -> str:
        """Return the line below a graph of `width` cells: times at equal distances, and "now" at the end."""
        line = ""
        form, size = ("%H:%M:%S", 8) if self.range_s <= 600 else ("%H:%M", 5)
        marks = max(1, min(MARKS, (width - 4) // (size + 2)))
        for mark in range(marks):
            at = self.now - self.range_s * (marks - mark) / marks
            line = fit(line, mark * width // marks) + time.strftime(form, time.localtime(at))
        return fit(line, max(0, width - 3)) + "now"


def gpu_graph(history: PulseHistory, times: GraphTime, width: int, height: int) -> list[PanelRow]:
    """Return the panel with two curves over time: the GPUs that jobs hold, and their load as a number of
    fully loaded GPUs (`_working`).
    """
    latest = history.latest
    jump = Jump("view", "nodes")
    if latest is None:
        return [title([("GPUs", "strong")], width, jump), PanelRow([(" no samples yet", "faint")])]
    held, works = latest.gpus_held, _working(latest)
    inner = max(2, width - AXIS - LEGEND)
    most = max(1.0, float(latest.gpus))
    lines = area_graph(
        history.values(lambda each: each.gpus_held, times.now, times.range_s, 2 * inner),
        history.values(_working, times.now, times.range_s, 2 * inner),
        height,
        most,
        ("running", "track"),
    )
    legend: list[Sequence[Piece]] = [[(f" held {held:5.4g}", "text")]]
    if works is not None:
        legend.append([(f" work {works:5.0f}", "running")])
        legend.append([(f" idle {max(0.0, held - works):5.0f}", "muted")])
    legend.append([(f" free {max(0.0, latest.gpus - held):5.4g}", "faint")])
    heading: list[Piece] = [("GPUs held ", "strong"), (f"{held / most:.0%}", "accent")]
    if works is not None:
        heading += [("  working ", "muted"), (f"{works / most:.0%}", "running")]
    return [title(heading, width, jump), *_framed(lines, legend, most, inner, times)]


def queue_graph(history: PulseHistory, times: GraphTime, width: int, height: int) -> list[PanelRow]:
    """Return the panel with the number of waiting jobs over time."""
    latest = history.latest
    jump = Jump("filter", "state:queued")
    if latest is None:
        return [title([("waiting", "strong")], width, jump), PanelRow([(" no samples yet", "faint")])]
    inner = max(2, width - AXIS - 1)
    values = history.values(lambda each: each.waiting, times.now, times.range_s, 2 * inner)
    most = round_up(max([each for each in values if each is not None], default=0.0))
    lines = area_graph(values, values, height, most, ("queued", "queued"))
    heading: list[Piece] = [
        ("waiting ", "strong"),
        (f"{latest.waiting:,.0f}", "accent"),
        (f" · {latest.waiting_gpu_hours:,.0f} GPU-h", "muted"),
    ]
    if latest.waiting and latest.started_per_hour:
        left = latest.waiting / latest.started_per_hour * HOUR_S
        heading.append((f" · starts in ≈ {duration(left)} at this pace", "faint"))
    return [title(heading, width, jump), *_framed(lines, [], most, inner, times)]


def waits(history: PulseHistory, times: GraphTime, width: int) -> list[PanelRow]:
    """Return the panel with the waits of started jobs: the median and the 90 % quantile."""
    return [
        title([("wait until start", "strong")], width, Jump("filter", "state:queued")),
        _trend("p50", history, times, width, lambda each: each.wait_p50_s, _seconds, higher_is_bad=True),
        _trend("p90", history, times, width, lambda each: each.wait_p90_s, _seconds, higher_is_bad=True),
    ]


def throughput(history: PulseHistory, times: GraphTime, width: int) -> list[PanelRow]:
    """Return the panel with the numbers of jobs that started and of jobs that failed in the last hour."""
    return [
        title([("throughput", "strong")], width, Jump("view", "events")),
        _trend("started", history, times, width, lambda each: each.started_per_hour, _per_hour),
        _trend(
            "failed", history, times, width, lambda each: each.failed_per_hour, _per_hour, higher_is_bad=True
        ),
    ]


def power(history: PulseHistory, times: GraphTime, width: int) -> list[PanelRow]:
    """Return the panel with the power of all GPUs and their mean load."""
    return [
        title([("power and load", "strong")], width, Jump("view", "nodes")),
        _trend("power", history, times, width, lambda each: each.power_w, _watts),
        _trend("load", history, times, width, lambda each: each.load, lambda value: f"{value:.0f} %"),
    ]


def free_gpus(
    history: PulseHistory, times: GraphTime, width: int, wide_jobs: int, whole_nodes: int
) -> list[PanelRow]:
    """Return the panel with the fragmentation of the free GPUs: the fraction of the free GPUs that is on
    nodes with used GPUs. `wide_jobs` is the number of waiting jobs that request whole nodes, and
    `whole_nodes` the number of entirely free nodes.
    """
    return [
        title([("fragmentation", "strong")], width, Jump("view", "rebalance")),
        _trend(
            "scatter",
            history,
            times,
            width,
            lambda each: each.fragmentation,
            lambda value: f"{value:.0%}",
            higher_is_bad=True,
        ),
        PanelRow(
            [
                (f" {wide_jobs} ", "warn" if wide_jobs and not whole_nodes else "text"),
                (f"want{'s' * (wide_jobs == 1)} whole nodes · ", "muted"),
                (f"{whole_nodes}", "text"),
                (" free", "muted"),
            ]
        ),
    ]


def _working(sample: PulseSample) -> float | None:
    """Return the load of all GPUs as a number of fully loaded GPUs: 8 GPUs with a mean load of 50 % give 4.
    The number is at most the number of GPUs that jobs hold. Return None if no load was measured.
    """
    return None if sample.load is None else min(sample.gpus_held, sample.load / 100 * sample.gpus)


def _framed(
    lines: Sequence[Sequence[Piece]],
    legend: Sequence[Sequence[Piece]],
    most: float,
    inner: int,
    times: GraphTime,
) -> list[PanelRow]:
    """Return a graph with its scale to the left, the legend to the right, and the times below."""
    rows = []
    height = len(lines)
    for number, line in enumerate(lines):
        value = _scale(number, height, most)
        scale = " " * (AXIS - 1) + "│" if value is None else f"{value:>{AXIS - 1},.6g}┤"
        beside = legend[number] if number < len(legend) else ()
        rows.append(PanelRow([(scale, "faint"), *line, *beside]))
    return [*rows, PanelRow([(" " * AXIS + times.axis(inner), "faint")])]


def _scale(line: int, height: int, most: float) -> float | None:
    """Return the number that is written to the left of line `line` of a graph with `height` lines: `most` at
    the first line, 0 at the last line, and, if `height` is even, half of `most` at the line below the middle.
    Return None for all other lines.
    """
    if line == 0:
        return most
    if line == height - 1:
        return 0.0
    return most / 2 if height % 2 == 0 and line == height // 2 else None


def _trend(
    name: str,
    history: PulseHistory,
    times: GraphTime,
    width: int,
    value: Value,
    shown: Callable[[float], str],
    *,
    higher_is_bad: bool = False,
) -> PanelRow:
    """Return a row with the present value of a figure, its sparkline, and its change since an hour ago."""
    latest, earlier = history.latest, history.before(HOUR_S)
    present = None if latest is None else value(latest)
    pieces: list[Piece] = [
        (f" {name:<8}", "muted"),
        (f"{'-' if present is None else shown(present):>8} ", "strong"),
    ]
    change = _change(present, None if earlier is None else value(earlier), higher_is_bad)
    room = max(0, width - 20 - 6)
    values: Values = history.values(value, times.now, times.range_s, room) if room else []
    most = max([each for each in values if each is not None], default=0.0)
    return PanelRow([*pieces, (sparkline(values, most), "accent"), change])


def _change(present: float | None, earlier: float | None, higher_is_bad: bool) -> Piece:
    """Return the change from `earlier` to `present` in percent, with an arrow. Return an empty text for a
    change of less than 5 %, or if one of the two values is unknown. With `higher_is_bad`, a rise has the
    style "bad" and a fall the style "good"; otherwise both have the style "muted".
    """
    if present is None or not earlier:
        return ("", "muted")
    percent = round((present - earlier) / earlier * 100)
    if abs(percent) < 5:
        return ("", "muted")
    rises = percent > 0
    text = f" {'↑' if rises else '↓'}{min(999, abs(percent))}%"
    return (text, "bad" if rises and higher_is_bad else "good" if higher_is_bad else "muted")


def _seconds(value: float) -> str:
    return duration(value)


def _per_hour(value: float) -> str:
    return f"{value:,.0f}/h"


def _watts(value: float) -> str:
    return f"{value / 1000:.1f} kW" if value >= 1000 else f"{value:.0f} W"
