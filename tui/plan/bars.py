"""Draws one row of the chart: bars of jobs with their numbers and names, reservations and drains."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

from tui.look.styled_lines import Piece, span
from tui.plan.chart_rows import ChartRow
from tui.plan.timeline import Timeline
from wire.api.forecasts import CERTAIN, DRAIN, LIKELY, PlanEntry
from wire.text import printable

RUNNING_SIGN, LIKELY_SIGN, LIMIT_SIGN, TAIL_SIGN = "█", "▒", "░", "┄"
RESERVED_SIGN, DRAINED_SIGN, NOW_SIGN, WAS_SIGN = "R", "╳", "▏", "┆"
USER_STYLES: Final = 8
"""The number of styles `user-0` to `user-7`. The bars of one user have the same style."""


def user_style(user: str) -> str:
    return f"user-{zlib.crc32(user.encode()) % USER_STYLES}"


def bar_end(entry: PlanEntry) -> float:
    """Return the time up to which the bar of a job is drawn; infinity if the job has no time limit."""
    return float("inf") if entry.ends_at is None else entry.ends_at


def draw_row(
    row: ChartRow,
    timeline: Timeline,
    now: float,
    style_of: Callable[[PlanEntry], str],
    shifted: Callable[[PlanEntry], float] = lambda _: 0.0,
) -> list[Piece]:
    """Return the cells of a row as pieces of text.

    1. Draw reservations and drains.
    2. Draw the jobs above reservations and drains: jobs with few GPUs first, so that jobs with many GPUs
       cover them. A running job is solid until its likely end, and a thin line until its time limit. A job
       that is expected to start has one of two hatches: for a likely start, or for the latest start.
    3. Write the number and the name of each job into its bar, if they fit. Write the name of each reservation
       and drain where no job covers it, if it fits.
    4. Mark the present time, if nothing is drawn in its cell.

    `shifted` returns the seconds by which a job would start later after a change. The bar of the job is drawn
    at the later time, with a mark at the start without the change.
    """
    signs = [" "] * timeline.width
    styles = ["text"] * timeline.width
    for block in row.blocks:
        sign, style = (DRAINED_SIGN, "drained") if block.kind == DRAIN else (RESERVED_SIGN, "held")
        until = float("inf") if block.ends_at is None else block.ends_at
        _fill(signs, styles, timeline.cells(block.starts_at, until), sign, style)
    for entry in sorted(row.bars, key=lambda entry: (entry.gpus, entry.job)):
        shift_s = shifted(entry)
        _draw_bar(signs, styles, entry, timeline, style_of(entry), shift_s)
        if shift_s:
            for column in timeline.cells(entry.starts_at, entry.starts_at + timeline.cell_s):
                signs[column], styles[column] = WAS_SIGN, style_of(entry)
    for block in row.blocks:
        until = float("inf") if block.ends_at is None else block.ends_at
        sign = DRAINED_SIGN if block.kind == DRAIN else RESERVED_SIGN
        visible = _visible(signs, sign, timeline.cells(block.starts_at, until))
        if visible:
            _write(signs, styles, visible, f" {printable(block.name, 24)} ", styles[visible[0]])
    column = timeline.column(now)
    if 0 <= column < timeline.width and (signs[column], styles[column]) == (" ", "text"):
        signs[column], styles[column] = NOW_SIGN, "accent"
    return _pieces(signs, styles)


def _draw_bar(
    signs: list[str], styles: list[str], entry: PlanEntry, timeline: Timeline, style: str, shift_s: float
) -> None:
    start, end = entry.starts_at + shift_s, bar_end(entry) + shift_s
    cells = timeline.cells(start, end)
    if entry.certainty == CERTAIN:
        solid = end if entry.likely_end_at is None else min(end, entry.likely_end_at)
        _fill(signs, styles, cells, TAIL_SIGN, style)
        _fill(signs, styles, timeline.cells(start, solid), RUNNING_SIGN, style)
    else:
        _fill(signs, styles, cells, LIKELY_SIGN if entry.certainty == LIKELY else LIMIT_SIGN, style)
    label, name = printable(entry.label, 12), printable(entry.name, 30)
    for text in (f" {label} {name} ", f" {label} "):
        if span(text) + 2 <= len(cells):
            _write(signs, styles, cells[1:], text, style)
            break


def _visible(signs: Sequence[str], sign: str, cells: range) -> range:
    """Return the first of the longest runs of cells that show the symbol `sign`; an empty range if there is
    none.
    """
    longest, begin = range(0), cells.start
    for column in range(cells.start, cells.stop + 1):
        if column == cells.stop or signs[column] != sign:
            if column - begin > len(longest):
                longest = range(begin, column)
            begin = column + 1
    return longest


def _fill(signs: list[str], styles: list[str], cells: range, sign: str, style: str) -> None:
    for column in cells:
        signs[column], styles[column] = sign, style


def _write(signs: list[str], styles: list[str], cells: Sequence[int], text: str, style: str) -> None:
    """Write a text into the cells of a row, if the text fits. A character that is two cells wide is written
    as a question mark.
    """
    if len(text) > len(cells):
        return
    for column, letter in zip(cells, text, strict=False):
        signs[column] = letter if span(letter) == 1 else "?"
        styles[column] = style


def _pieces(signs: Sequence[str], styles: Sequence[str]) -> list[Piece]:
    both = zip(signs, styles, strict=True)
    return [
        ("".join(sign for sign, _ in same), style) for style, same in groupby(both, key=lambda cell: cell[1])
    ]
