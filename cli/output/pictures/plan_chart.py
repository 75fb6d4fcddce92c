"""Draws a plan of the scheduler as an SVG image: a row for each node, and a bar for each job of the node."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from heapq import heappop, heappush

from controller.sim.report.charts.axes import TIME_STEPS, Scale, ruled_x
from controller.sim.report.markup import Markup, el, joined
from wire.api.forecasts import CERTAIN, DRAIN, LIKELY, Plan, PlanBlock, PlanEntry
from wire.job.spec import gpus_text
from wire.text import printable

WIDTH, LEFT, RIGHT, TOP = 1040.0, 110.0, 12.0, 12.0
LANE, GAP, CURVE = 9.0, 6.0, 60.0
"""Heights in units of the image: the lane of one GPU, the space between two nodes, and the curve of free
GPUs.
"""
LETTER = 5.2
"""The width of a letter of a job's name, in units of the image."""
LANES = 16
"""The most lanes (lines of the image, one for each GPU) of a node. Jobs on further GPUs share the last
lane.
"""

STYLE = """
svg { background: #fff; font: 11px sans-serif; }
.job { font-size: 9px; fill: #fff; } .limit-job, .likely-job { font-size: 9px; fill: #123; }
.grid { stroke: #ddd; } .tick, .name { fill: #444; } .block { fill: #999; opacity: .25; }
.certain { fill: #2563a8; } .limit { fill: #86b0da; } .likely { fill: #c9dcef; stroke: #2563a8;
stroke-dasharray: 3 2; } .free { fill: none; stroke: #2b8a3e; stroke-width: 1.5; }
"""

Bar = tuple[PlanEntry, int, int]
"""A job, the first lane of one of its bars, and the number of neighbouring lanes of this bar."""


def plan_svg(plan: Plan) -> Markup:
    """Return the plan as an SVG image. Below the nodes is the curve of free GPUs."""
    held = [node for each in plan.entries for node in each.nodes]
    nodes = sorted({*held, *(node for each in plan.blocks for node in each.nodes)})
    rows, y = [], TOP
    x = Scale(plan.now, plan.now + plan.horizon_s, LEFT, WIDTH - RIGHT)
    for node in nodes:
        bars = [*_bars([each for each in plan.entries if node in each.nodes])]
        lanes = max((first + count for _, first, count in bars), default=1)
        rows.append(_node(node, bars, [each for each in plan.blocks if node in each.nodes], lanes, x, y))
        y += lanes * LANE + GAP
    bottom = y + CURVE
    return el(
        "svg",
        el("title", "Plan of the scheduler"),
        el("desc", "One row for each node, one bar for each job, and the number of free GPUs over time."),
        el("style", Markup(STYLE)),
        ruled_x(_ticks(plan), x, TOP, bottom),
        *rows,
        _curve(plan, x, Scale(0.0, max(1.0, float(plan.gpus)), bottom, y + GAP)),
        el("text", "free GPUs", class_="name", x=LEFT - 8.0, y=bottom - CURVE / 2, text_anchor="end"),
        viewBox=f"0 0 {WIDTH:g} {bottom + 24:g}",
        width=f"{WIDTH:g}",
        xmlns="http://www.w3.org/2000/svg",
        role="img",
    )


def plan_html(plan: Plan) -> str:
    """Return the plan as an HTML page with the image and a table of the jobs."""
    cells = (
        (each.label, each.name, each.user, gpus_text(each.gpus), ", ".join(each.nodes), _span(each))
        for each in plan.entries
    )
    heading = el("tr", *(el("th", each) for each in ("Job", "Name", "User", "GPUs", "Nodes", "Time")))
    body = (el("tr", *(el("td", cell) for cell in row)) for row in cells)
    style = "body { font-family: sans-serif } td, th { text-align: left; padding: 0 1em 0 0 }"
    head = el("head", el("meta", charset="utf-8"), el("title", "Plan"), el("style", Markup(style)))
    page = el("html", head, el("body", el("h1", "Plan"), plan_svg(plan), el("table", heading, *body)))
    return f"<!doctype html>\n{page}\n"


def _bars(entries: list[PlanEntry]) -> Iterator[Bar]:
    """Yield the bars of the jobs on one node. Each job gets the lowest lanes that are free at its start."""
    free: list[int] = []
    held: list[tuple[float, int, list[int]]] = []
    used = 0
    for number, entry in enumerate(sorted(entries, key=lambda each: (each.starts_at, each.job))):
        while held and held[0][0] <= entry.starts_at:
            for lane in heappop(held)[2]:
                heappush(free, lane)
        lanes = []
        for _ in range(max(1, math.ceil(entry.gpus / len(entry.nodes)))):
            if not free:
                heappush(free, used)
                used += 1
            lanes.append(heappop(free))
        heappush(held, (entry.ends_at or math.inf, number, lanes))
        shown = sorted({min(lane, LANES - 1) for lane in lanes})
        first = last = shown[0]
        for lane in shown[1:]:
            if lane > last + 1:
                yield entry, first, last - first + 1
                first = lane
            last = lane
        yield entry, first, last - first + 1


def _node(name: str, bars: list[Bar], blocks: list[PlanBlock], lanes: int, x: Scale, top: float) -> Markup:
    height = lanes * LANE
    return joined(
        el("text", name[:16], class_="name", x=LEFT - 8.0, y=top + height / 2 + 4, text_anchor="end"),
        *(_rect("block", _about(each), each.starts_at, each.ends_at, x, top, height) for each in blocks),
        *(
            _rect(
                each.certainty,
                f"{each.label} {printable(each.name, 60)} ({printable(each.user, 40)}), {_span(each)}",
                each.starts_at,
                each.ends_at,
                x,
                top + first * LANE,
                count * LANE - 1,
            )
            for each, first, count in bars
        ),
        *(_name(each, x, top + first * LANE, count) for each, first, count in bars),
    )


def _name(entry: PlanEntry, x: Scale, top: float, lanes: int) -> Markup:
    """Return the number and the name of a job as text in its bar; only the number, or nothing, if the bar is
    too short.
    """
    left = x(max(entry.starts_at, x.low))
    right = x(min(x.high if entry.ends_at is None else entry.ends_at, x.high))
    label, name = printable(entry.label, 12), printable(entry.name, 30)
    text = next((each for each in (f"{label} {name}", label) if len(each) * LETTER + 6 <= right - left), "")
    kind = "job" if entry.certainty == CERTAIN else f"{entry.certainty}-job"
    middle = top + lanes * LANE / 2 + 2.5
    return el("text", text, class_=kind, x=left + 3, y=middle) if text else Markup("")


def _rect(
    kind: str, about: str, begin: float, end: float | None, x: Scale, top: float, height: float
) -> Markup:
    left = x(max(begin, x.low))
    right = x(min(x.high if end is None else end, x.high))
    return el(
        "rect", el("title", about), class_=kind, x=left, y=top, width=max(right - left, 1.0), height=height
    )


def _curve(plan: Plan, x: Scale, y: Scale) -> Markup:
    steps = [f"H{x(point.at):.1f}V{y(point.gpus_free):.1f}" for point in plan.free]
    start = f"M{x.begin:.1f} {y(plan.free[0].gpus_free):.1f}" if plan.free else "M0 0"
    return el("path", class_="free", d=f"{start}{''.join(steps)}H{x.end:.1f}")


def _ticks(plan: Plan) -> list[tuple[float, str]]:
    """Return about ten ticks or fewer, as (time, label), at round local times such as 14:00; for a plan
    longer than a day, such as Thu 06:00.
    """
    step = next((step for step in TIME_STEPS if plan.horizon_s / step <= 10), TIME_STEPS[-1])
    offset = _local(plan.now).utcoffset()
    shift = offset.total_seconds() if offset is not None else 0.0
    first = math.ceil((plan.now + shift) / step) * step - shift
    form = "%H:%M" if plan.horizon_s <= 86_400 else "%a %H:%M"
    count = int((plan.now + plan.horizon_s - first) / step) + 1
    times = (first + place * step for place in range(count))
    return [(at, _local(at).strftime(form)) for at in times]


def _span(each: PlanEntry) -> str:
    end = "no end known" if each.ends_at is None else _clock(each.ends_at)
    words = {CERTAIN: "runs", LIKELY: "likely"}.get(each.certainty, "at the latest")
    return f"{_clock(each.starts_at)} - {end} ({words})"


def _about(block: PlanBlock) -> str:
    kind = "drain of" if block.kind == DRAIN else "reservation"
    return f"{kind} {printable(block.name, 60)} {printable(block.why, 100)}".rstrip()


def _clock(at: float) -> str:
    return f"{_local(at):%Y-%m-%d %H:%M}"


def _local(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC).astimezone()
