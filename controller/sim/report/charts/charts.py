"""Draws SVG charts, which need no script, and work in print, in dark mode and with screen readers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controller.sim.report.charts.axes import (
    Scale,
    bend_waits,
    decades,
    level_ticks,
    ruled_x,
    ruled_y,
    time_ticks,
    wait_ticks,
)
from controller.sim.report.groups import Percentiles
from controller.sim.report.markup import Markup, el, joined
from controller.sim.report.number_formats import count, span_text
from controller.sim.report.run import TimeSpan

WIDE, HALF = 1040.0, 510.0
LEFT, RIGHT, TOP, BOTTOM = 56.0, 12.0, 10.0, 26.0

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """One curve of a chart. `place` is the number of the curve's colour and dashes: the number of the
    simulation run in the report (from 0), modulo the number of colours.
    """

    label: str
    values: Floats
    place: int = 0


def drawing(
    width: float, height: float, title: str, description: str, *inside: Markup | None, **more: str
) -> Markup:
    """Draw an SVG image with a title and a description for screen readers."""
    return el(
        "svg",
        el("title", title),
        el("desc", description),
        *inside,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=f"{title}. {description}",
        **more,
    )


def over_time(
    title: str,
    description: str,
    curves: Sequence[Curve],
    span: TimeSpan,
    most: float,
    text: Callable[[float], str],
    height: float = 190.0,
    second: Curve | None = None,
) -> Markup:
    """Draw a chart of values over time.

    `most` is the highest value that the vertical axis must show, and `text` formats a value for a label.
    `second` is a dashed curve for comparison. If there is only one curve, the area below the curve is filled.
    """
    ticks = level_ticks(most)
    x = Scale(span.begin_s, span.end_s, LEFT, WIDE - RIGHT)
    y = Scale(0.0, ticks[-1], height - BOTTOM, TOP)
    return drawing(
        WIDE,
        height,
        title,
        description,
        ruled_y([(tick, text(tick)) for tick in ticks], y, LEFT, WIDE - RIGHT),
        ruled_x(time_ticks(span), x, TOP, height - BOTTOM),
        el("path", class_="line second", d=_step_path(second, x, y)) if second else None,
        *(_curve(curve, x, y, filled=len(curves) == 1) for curve in curves),
        el("rect", class_="window", x=LEFT, y=TOP, width=0, height=height - BOTTOM - TOP),
        el("line", class_="cursor", x1=LEFT, x2=LEFT, y1=TOP, y2=height - BOTTOM),
        class_="time",
        data_left=f"{LEFT:g}",
        data_right=f"{WIDE - RIGHT:g}",
    )


def _curve(curve: Curve, x: Scale, y: Scale, *, filled: bool) -> Markup:
    path = _step_path(curve, x, y)
    area = el("path", class_=f"area run{curve.place}", d=f"{path}V{y.begin:.1f}H{x.begin:.1f}Z")
    return joined(area if filled else None, el("path", class_=f"line run{curve.place}", d=path))


def _step_path(curve: Curve, x: Scale, y: Scale) -> str:
    """Return the SVG path of a curve of steps. Each value is the height of one step, and all steps are
    equally wide.
    """
    edges = np.linspace(x.begin, x.end, len(curve.values) + 1)
    parts = [f"M{edges[0]:.1f} {y(float(curve.values[0])):.1f}"]
    last = ""
    for right, value in zip(edges[1:], curve.values, strict=True):
        level = f"{y(float(value)):.1f}"
        if level != last and last:
            parts.append(f"V{level}")
        parts.append(f"H{right:.1f}")
        last = level
    return "".join(parts)


@dataclass(frozen=True)
class SpreadRow:
    """One row of a chart: a group of jobs, and the percentiles of its waits in each run that has jobs of the
    group.
    """

    name: str
    spreads: Sequence[tuple[str, int, Percentiles]]


def spreads(title: str, description: str, rows: Sequence[SpreadRow]) -> Markup:
    """Draw the percentiles of waits in a chart with one row per group of jobs.

    A thin line goes from the 5th to the 95th percentile, a thick line from the 25th to the 75th. A dot and a
    number show the median.
    """
    line = 11.0 if all(len(row.spreads) <= 1 for row in rows) else 13.0
    heights = [line * max(len(row.spreads), 1) + 11.0 for row in rows]
    bottom = TOP + sum(heights)
    left, right = 118.0, HALF - 74.0
    most = max((spread.quantiles[-1] for row in rows for _, _, spread in row.spreads), default=0.0)
    x = Scale(0.0, max(most, 60.0), left, right, bend_waits)
    parts: list[Markup] = [ruled_x(wait_ticks(x.high), x, TOP, bottom)]
    top = TOP
    for row, height in zip(rows, heights, strict=True):
        middle = top + height / 2
        parts.append(
            el("text", _cut(row.name), class_="name", x=left - 10.0, y=middle + 4.0, text_anchor="end")
        )
        for place, (label, run, spread) in enumerate(row.spreads):
            said = f"{row.name}, {label}" if len(row.spreads) > 1 else row.name
            parts.append(_spread(said, run, spread, x, top + 5.5 + line * (place + 0.5), line))
        top += height
    return drawing(HALF, bottom + BOTTOM, title, description, *parts)


def _cut(name: str) -> str:
    """Shorten the name of a row to the width of its column. The full name appears when the mouse is over the
    row."""
    return name if len(name) <= 16 else name[:15] + "…"


def _spread(name: str, run: int, found: Percentiles, x: Scale, y: float, height: float) -> Markup:
    low, quarter, median, most, high = map(x, found.quantiles)
    said = (
        f"{name}: half of {count(found.count, 'job')} waited at most {span_text(found.median)}, "
        f"95 % at most {span_text(found.quantiles[-1])}, the longest wait was {span_text(found.most)}"
    )
    return el(
        "g",
        el("title", said),
        el("rect", class_="touch", x=0.0, y=y - height / 2, width=HALF, height=height),
        el("line", class_="whisker", x1=low, x2=high, y1=y, y2=y),
        el("rect", class_="box", x=quarter, y=y - 3.5, width=max(most - quarter, 2.0), height=7.0, rx=2.0),
        el("circle", class_="median", cx=median, cy=y, r=3.5),
        el("text", span_text(found.median), class_="tick", x=HALF - 8.0, y=y + 4.0, text_anchor="end"),
        class_=f"spread run{run}",
    )


def shares(title: str, description: str, curves: Sequence[Curve], *, waits: bool) -> Markup:
    """Draw the cumulative distribution of the waits of jobs (`waits` True) or of their slowdowns: for each
    value on the horizontal axis, the fraction of jobs whose wait or slowdown is at most this value. A higher
    curve is better.
    """
    height = 230.0
    most = max((float(curve.values.max(initial=0.0)) for curve in curves), default=0.0)
    if waits:
        x = Scale(0.0, max(most, 60.0), LEFT, HALF - RIGHT, bend_waits)
        ticks = wait_ticks(x.high)
    else:
        ticks = decades(most)
        x = Scale(1.0, ticks[-1][0], LEFT, HALF - RIGHT, math.log10)
    y = Scale(0.0, 1.0, height - BOTTOM, TOP)
    return drawing(
        HALF,
        height,
        title,
        description,
        ruled_y(
            [(part, f"{part * 100:.0f} %") for part in (0.0, 0.25, 0.5, 0.75, 1.0)], y, LEFT, HALF - RIGHT
        ),
        ruled_x(ticks, x, TOP, height - BOTTOM),
        *(
            el("path", class_=f"line run{curve.place}", d=_cumulative_path(curve.values, x, y))
            for curve in curves
        ),
    )


def _cumulative_path(values: Floats, x: Scale, y: Scale) -> str:
    """Return the SVG path of the cumulative curve, with at most a few hundred points."""
    if not len(values):
        return ""
    ordered = np.sort(values)
    parts = np.unique(np.concatenate((np.linspace(0, 1, 201), 1 - np.geomspace(0.0005, 0.005, 10))))
    places = np.clip(np.ceil(parts * len(ordered)).astype(int) - 1, 0, len(ordered) - 1)
    points = [
        f"{x(float(ordered[place])):.1f} {y(float(part)):.1f}"
        for part, place in zip(parts, places, strict=True)
    ]
    return "M" + "L".join(points) + f"H{x.end:.1f}"
