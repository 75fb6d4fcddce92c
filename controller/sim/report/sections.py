"""Sections of the report's page. Most sections are a chart with a table of the same values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from controller.sim.report.charts.axes import TIME_STEPS, since
from controller.sim.report.charts.charts import Curve, SpreadRow, over_time, shares, spreads
from controller.sim.report.groups import JobGroup, by_size, by_user, limit_groups
from controller.sim.report.markup import Markup, el, joined
from controller.sim.report.number_formats import (
    HIGHER,
    NEITHER,
    count,
    figure_name,
    figure_text,
    number,
    percent,
    span_text,
)
from controller.sim.report.page_elements import PALETTE, details, figure, legend, of_several, section, table
from controller.sim.report.run import ReportRun, TimeSpan
from controller.sim.report.series import BINS, FEW, Floats, Steps, busy, busy_cores, queued
from wire.text import duration

TILES = ("utilisation", "mean_wait_s", "p95_wait_s", "avebsld", "makespan_s")
USERS, LISTED = 12, 300
"""The greatest number of users of one run in the chart of waits, and in the table below the chart."""


def tiles(run: ReportRun) -> Markup:
    """Return the boxes at the top of the page with the most important figures of a run, such as the mean
    wait."""
    return el(
        "dl",
        *(
            el("div", el("dt", figure_name(key)), el("dd", figure_text(key, run.figures[key])))
            for key in TILES
            if key in run.figures
        ),
        class_="tiles",
    )


def figures_section(runs: Sequence[ReportRun]) -> Markup:
    """Return the section with a table of all figures of every run. If the values of a figure differ between
    runs, the best value is bold.
    """
    keys = dict.fromkeys(key for run in runs for key in run.figures)
    rows = [[figure_name(key), *(_figure(runs, run, key) for run in runs)] for key in keys]
    return section(
        "All figures",
        "The best value of each figure is bold." if len(runs) > 1 else "",
        table("", ["", *(run.label for run in runs)], rows),
    )


def _figure(runs: Sequence[ReportRun], run: ReportRun, key: str) -> Markup | str:
    if key not in run.figures:
        return "–"
    text = figure_text(key, run.figures[key])
    values = [other.figures[key] for other in runs if key in other.figures]
    better = max(values) if key in HIGHER else min(values)
    best = len(runs) > 1 and key not in NEITHER and run.figures[key] == better and len(set(values)) > 1
    return el("b", text) if best else text


def story_section(runs: Sequence[ReportRun]) -> Markup | None:
    """Return the section with the lines of the story (commands of a simulated operator) and their outcomes;
    None if no run had a story.

    A line with the same outcome in all runs is listed once.
    """
    outcomes: dict[tuple[int, str, str], dict[str, list[str]]] = {}
    for run in runs:
        for each in run.story:
            by_text = outcomes.setdefault((each.line, each.when, each.words), {})
            by_text.setdefault(each.text, []).append(run.label)
    rows = [
        [when, words, *of_several(runs, "all" if len(labels) == len(runs) else ", ".join(labels)), text]
        for (_, when, words), by_text in outcomes.items()
        for text, labels in by_text.items()
    ]
    if not rows:
        return None
    heading = ["Time", "Command", *of_several(runs, "Run"), "Outcome"]
    return section("Story", "What an operator did while the jobs ran.", table("", heading, rows))


def time_sections(runs: Sequence[ReportRun], span: TimeSpan) -> tuple[Markup, dict[str, Any]]:
    """Return the sections on utilisation and queue length over time. Also return the data of their curves, by
    chart name: the script of the report shows the values at the position of the mouse.
    """
    unit, capacity = runs[0].unit, max(run.capacity for run in runs)
    bins = BINS if len(runs) == 1 else FEW
    levels, waiting = [busy(run) for run in runs], [queued(run) for run in runs]
    parts = _curves(
        runs, [level.means(span, bins) / (run.capacity or 1) for run, level in zip(runs, levels, strict=True)]
    )
    depths = _curves(runs, [steps.means(span, bins) for steps in waiting])
    cores = _cores(runs[0], span) if len(runs) == 1 else None
    most = max(1.0, *(float(curve.values.max()) for curve in depths))
    used = over_time("Utilisation over time", _range(parts, percent), parts, span, 1.0, percent, second=cores)
    depth = over_time("Queue depth over time", _range(depths, number), depths, span, most, number, 150.0)
    used_by_time = _by_time(runs, span, levels, lambda run, level: percent(level / (run.capacity or 1)))
    depth_by_time = _by_time(runs, span, waiting, lambda _run, level: number(level))
    about = f"The percentage of all {count(int(capacity), unit)} that jobs held."
    about += " The dashed line is the percentage of all processors." if cores else ""
    utilisation = _charted("Utilisation", about, runs, "busy", used, "Utilisation by time", used_by_time)
    queue = _charted(
        "Queue", "The number of jobs that waited.", runs, "queue", depth, "Queue by time", depth_by_time
    )
    readings = {"busy": _reading(parts, 100, "%"), "queue": _reading(depths, 1, "jobs")}
    return joined(utilisation, queue), readings


def _charted(
    title: str, about: str, runs: Sequence[ReportRun], name: str, chart: Markup, of: str, numbers: Markup
) -> Markup:
    """Return a section of the page with a chart and a table (`numbers`) of the chart's values.

    The script of the report finds the chart by `name`, the id of its element.
    """
    return section(title, about, legend(runs), figure(name, chart), details(of, numbers))


def _curves(runs: Sequence[ReportRun], values: Iterable[Floats]) -> list[Curve]:
    return [
        Curve(run.label, each, place % PALETTE)
        for place, (run, each) in enumerate(zip(runs, values, strict=True))
    ]


def _reading(curves: Sequence[Curve], times: float, unit: str) -> list[dict[str, Any]]:
    return [
        {
            "label": curve.label,
            "unit": unit,
            "values": [round(float(value) * times, 1) for value in curve.values],
        }
        for curve in curves
    ]


def _cores(run: ReportRun, span: TimeSpan) -> Curve | None:
    """Return the curve of the used fraction of all processors for a report that counts GPUs. Return None if
    the report counts processors, because the main curve of the chart then shows this fraction.
    """
    if not run.by_gpu:
        return None
    whole = run.cluster.cpu_milli / run.cluster.core_milli
    return Curve("processors", busy_cores(run).means(span) / (whole or 1))


def _range(curves: Sequence[Curve], text: Callable[[float], str]) -> str:
    return "; ".join(
        f"{curve.label}: between {text(float(curve.values.min()))} and {text(float(curve.values.max()))}, "
        f"{text(float(curve.values.mean()))} on average"
        for curve in curves
    )


def _by_time(
    runs: Sequence[ReportRun],
    span: TimeSpan,
    levels: Sequence[Steps],
    text: Callable[[ReportRun, float], str],
) -> Markup:
    """Return a table of the averages of `levels` (one for each run) over equal periods of time. The table has
    at most about 32 rows."""
    step = next((step for step in TIME_STEPS if span.length_s / step <= 32), TIME_STEPS[-1])
    bins = int(np.ceil(span.length_s / step))
    whole = TimeSpan(span.begin_s, span.begin_s + bins * step)
    means = [level.means(whole, bins) for level in levels]
    rows = [
        [since(place * step), *(text(run, float(mean[place])) for run, mean in zip(runs, means, strict=True))]
        for place in range(bins)
    ]
    return table(f"Averages over {duration(step)} each", ["From", *(run.label for run in runs)], rows)


def spreads_sections(runs: Sequence[ReportRun]) -> Markup:
    """Return the sections on waits by user and by job size."""
    groups = [by_user(run) for run in runs]
    order = {group.name: place for place, group in enumerate(groups[0])}
    users = [
        limit_groups(sorted(found, key=lambda group: order.get(group.name, len(order))), USERS)
        for found in groups
    ]
    sizes = [by_size(run) for run in runs]
    about = "Thin line: 5 % to 95 % of the jobs. Thick line: 25 % to 75 %. Dot and number: the median."
    return el(
        "div",
        *(
            _charted(title, text, runs, "", spreads(title, "", _rows(runs, shown)), title, numbers)
            for title, text, shown, numbers in (
                (
                    "Waits by user",
                    f"{about} The user with the most GPU or processor time is on top.",
                    users,
                    _group_table(runs, [found[:LISTED] for found in groups], "User"),
                ),
                ("Waits by size", about, sizes, _group_table(runs, sizes, "Size")),
            )
        ),
        class_="pair",
    )


def _rows(runs: Sequence[ReportRun], groups: Sequence[Sequence[JobGroup]]) -> list[SpreadRow]:
    """Return one row per group of jobs. The groups of the first run come first, then the groups that only
    other runs have."""
    names = dict.fromkeys(group.name for found in groups for group in found)
    by_name = [{group.name: group for group in found} for found in groups]
    return [
        SpreadRow(
            name,
            [
                (run.label, place % PALETTE, found[name].waits)
                for place, (run, found) in enumerate(zip(runs, by_name, strict=True))
                if name in found
            ],
        )
        for name in names
    ]


def _group_table(runs: Sequence[ReportRun], groups: Sequence[Sequence[JobGroup]], of: str) -> Markup:
    rows = [
        [
            group.name,
            *of_several(runs, run.label),
            number(len(group.records)),
            number(group.used_s / 3_600),
            *(
                span_text(wait)
                for wait in (
                    group.waits.mean,
                    group.waits.median,
                    group.waits.quantiles[-1],
                    group.waits.most,
                )
            ),
            number(group.slowdown.mean),
        ]
        for run, found in zip(runs, groups, strict=True)
        for group in found
    ]
    heading = [
        of,
        *of_several(runs, "Run"),
        "Jobs",
        f"{runs[0].unit}-hours",
        "Mean wait",
        "Median",
        "95 % at most",
        "Longest",
        "Mean slowdown",
    ]
    return table("", heading, rows)


def shares_sections(runs: Sequence[ReportRun]) -> Markup:
    """Return the sections on the distribution of waits and of slowdowns over all jobs."""
    about = "Fraction of the jobs with at most this slowdown: time from submit to end, divided by run time."
    waits = _curves(runs, (_sorted(record.wait_s for record in run.started) for run in runs))
    slowdowns = _curves(runs, (_sorted(record.slowdown for record in run.started) for run in runs))
    of_waits = shares("Distribution of waits", _medians(waits, span_text), waits, waits=True)
    of = "Distribution of bounded slowdown"
    of_slowdowns = shares(of, _medians(slowdowns, number), slowdowns, waits=False)
    return el(
        "div",
        _charted(
            "Waits",
            "Fraction of the jobs that waited at most this long.",
            runs,
            "",
            of_waits,
            "Distribution of waits",
            _quantiles(waits, span_text),
        ),
        _charted("Bounded slowdown", about, runs, "", of_slowdowns, of, _quantiles(slowdowns, number)),
        class_="pair",
    )


def _sorted(values: Iterable[float]) -> Floats:
    return np.sort(np.array([*values], dtype=np.float64))


def _at(curve: Curve, part: float) -> float:
    place = max(0, int(np.ceil(part * len(curve.values))) - 1)
    return float(curve.values[place]) if len(curve.values) else 0.0


def _medians(curves: Sequence[Curve], text: Callable[[float], str]) -> str:
    return "; ".join(f"{curve.label}: half of the jobs at most {text(_at(curve, 0.5))}" for curve in curves)


def _quantiles(curves: Sequence[Curve], text: Callable[[float], str]) -> Markup:
    parts = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
    rows = [[percent(part), *(text(_at(curve, part)) for curve in curves)] for part in parts]
    return table("", ["Fraction of the jobs", *(curve.label for curve in curves)], rows)
