"""Draws what projects and users used and what they were entitled to, in three lengths of time, and the waits
of their jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tui.look.styled_lines import Piece, beside, fit, heading, share_bar
from wire.api.service.reports import FairnessReport, FairnessRow
from wire.http.client import Client
from wire.text import duration, printable

WINDOWS: Final = (("last hour", 3_600), ("last day", 86_400), ("last week", 604_800))
"""The lengths of time, in seconds, for which the GPU-hours are shown. The controller adds up whole hours, so
`last hour` begins with the hour in which it begins.
"""
BY: Final = ("project", "user")
WIDE: Final = 140
"""On a screen of at least this many cells, the waits are beside the GPU-hours."""
NAME: Final = 14
AMOUNT: Final = 14
"""The width of two numbers of GPU-hours, such as 120.5/96.0."""

Reports = Mapping[str, Sequence[FairnessReport]]
"""For project and for user, the reports of the WINDOWS."""


@dataclass(frozen=True)
class _Usage:
    """The rows of one project or user in the reports of the WINDOWS; None if a report has no such row."""

    name: str
    rows: tuple[FairnessRow | None, ...]


def fairness_reports(client: Client, now: float) -> Reports:
    """Request the reports on fairness from the controller. This runs in a worker thread."""
    return {by: [client.fairness(by, int(now - length)) for _, length in WINDOWS] for by in BY}


def fairness_lines(reports: Reports, width: int, height: int) -> list[list[Piece]]:
    """Return the lines of the panels: first for projects, then for users, as many as `height` allows. A
    panel with less than two rows would only repeat the list, so it is left out if it is too high.
    """
    lines: list[list[Piece]] = []
    for by in BY:
        panel = _of_one_kind(reports.get(by, ()), by, width)
        if len(lines) + len(panel) + 1 <= height:
            lines += [[], *panel] if panel else []
    return lines


def _of_one_kind(reports: Sequence[FairnessReport], by: str, width: int) -> list[list[Piece]]:
    if not reports or not any(report.rows for report in reports):
        return []
    if width < WIDE:
        return [*_usage(reports, by, width), *_waits(reports[-1], by, width)]
    half = width * 3 // 5
    return beside(
        [(_usage(reports, by, half - 1), half), (_waits(reports[-1], by, width - half), width - half)]
    )


def _usage(reports: Sequence[FairnessReport], by: str, width: int) -> list[list[Piece]]:
    """Return the panel of GPU-hours: for each length of time a bar of the used GPU-hours, with a mark at the
    entitled GPU-hours.
    """
    title: list[Piece] = [
        (f"GPU-hours by {by} ", "strong"),
        ("used ", "muted"), ("━", "running"), ("  entitled ", "muted"), ("┃", "strong"),
    ]  # fmt: skip
    each = max(AMOUNT + 6, (width - NAME - 2) // len(WINDOWS))
    room = each - AMOUNT - 2
    tops = [max([max(row.got, row.entitled) for row in report.rows], default=0.0) for report in reports]
    head: list[Piece] = [(" " * (NAME + 2), "text")]
    head += [(fit(name, each), "head") for name, _ in WINDOWS]
    lines = [heading(title, width), head]
    for usage in _by_name(reports):
        line: list[Piece] = [(f" {fit(printable(usage.name), NAME)} ", "text")]
        for row, top in zip(usage.rows, tops, strict=True):
            if row is None or top <= 0:
                line.append((" " * each, "text"))
                continue
            amount = f" {_hours(row.got)}/{_hours(row.entitled)}"
            over = row.got > row.entitled * 1.05 + 0.01
            line += share_bar(row.got / top, row.entitled / top, room)
            line.append((fit(amount, each - room), "warn" if over else "muted"))
        lines.append(line)
    return lines


def _waits(report: FairnessReport, by: str, width: int) -> list[list[Piece]]:
    """Return the panel of waits: the project or user whose job has waited for the longest time is first."""
    lines = [
        heading([(f"waits by {by} ", "strong"), ("last week", "muted")], width),
        [(f" {'':<{NAME}} {'started':>7} {'median':>7} {'90 %':>7} {'worst':>7}  waits longest now", "head")],
    ]
    for row in sorted(report.rows, key=lambda row: (-row.longest_waiting_s, -row.wait_max_s, row.name)):
        now = f"job {row.longest_waiting}: {duration(row.longest_waiting_s)}" if row.longest_waiting else ""
        figures = (row.wait_p50_s, row.wait_p90_s, row.wait_max_s)
        waits = " ".join(f"{'-' if wait is None else duration(wait):>7}" for wait in figures)
        worst = row.wait_max_s > 0 and row.wait_max_s == max(each.wait_max_s for each in report.rows)
        lines.append(
            [
                (f" {fit(printable(row.name), NAME)} ", "text"),
                (f"{row.started:>7,} ", "muted"),
                (f"{waits}  ", "warn" if worst else "muted"),
                (printable(now), "accent"),
            ]
        )
    return lines


def _by_name(reports: Sequence[FairnessReport]) -> Iterator[_Usage]:
    """Yield the rows of each project or user, ordered by the GPU-hours of the longest time."""
    found = [{row.name: row for row in report.rows} for report in reports]
    names = {row.name: -row.got for report in reports for row in report.rows}
    for name in sorted(names, key=lambda name: (names[name], name)):
        yield _Usage(name, tuple(rows.get(name) for rows in found))


def _hours(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
