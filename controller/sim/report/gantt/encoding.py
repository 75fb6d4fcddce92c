"""Encodes the bars of a Gantt chart as lists of small numbers, which the script of the report draws."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from controller.sim.job_results import SimulatedJob
from controller.sim.report.gantt.bars import Bar, bars_of, tracks_of
from controller.sim.report.run import ReportRun, TimeSpan
from wire.text import printable

MOST = 120_000
"""The greatest number of bars in one report. This many bars take about 4 MB in the file."""


@dataclass
class _Names:
    """A table of distinct strings. The encoded data contain the index of a string in the table and not the
    string itself."""

    known: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        """Return the index of a string in the table. A new string is added to the table."""
        return self.known.setdefault(printable(text, 80), len(self.known))


@dataclass(frozen=True)
class Gantt:
    """The encoded bars of one run, which the script of the report draws, and the number of bars left out."""

    packed: dict[str, Any]
    bars: int
    left_out: int
    left_out_part: float
    """The GPU time (or processor time) of the bars that were left out, as a fraction of that of all bars."""


def gantt_of(run: ReportRun, span: TimeSpan, most: int) -> Gantt:
    """Return the encoded Gantt chart of a run. If there are more than `most` bars, only the bars with the
    most GPU time (or processor time) are kept.
    """
    bars = bars_of(run)
    areas = [bar.count * (bar.high - bar.low) * run.ran_s(bar.record) for bar in bars]
    kept = bars
    if len(bars) > most:
        largest = sorted(range(len(bars)), key=lambda place: -areas[place])[:most]
        kept = [bars[place] for place in sorted(largest)]
    whole = sum(areas)
    shown = sum(bar.count * (bar.high - bar.low) * run.ran_s(bar.record) for bar in kept)
    return Gantt(
        _packed(run, span, kept), len(kept), len(bars) - len(kept), 1 - shown / whole if whole else 0.0
    )


def _packed(run: ReportRun, span: TimeSpan, bars: Sequence[Bar]) -> dict[str, Any]:
    records = {bar.record.job: bar.record for bar in bars}
    places = {job: place for place, job in enumerate(records)}
    # Round times to whole seconds if the time span is long, because a second is then less than a pixel.
    unit_s = 1.0 if span.length_s > 20_000 else 0.01
    return {
        "label": printable(run.label, 80),
        "unit": run.unit,
        "unit_s": unit_s,
        "nodes": [
            [printable(node, 80), [[track.name, track.height] for track in tracks]]
            for node, tracks in groupby(tracks_of(run), key=lambda track: track.node)
        ],
        **_columns(run, span, [*records.values()], unit_s),
        "whole": [
            number for bar in bars if bar.whole for number in (places[bar.record.job], bar.first, bar.count)
        ],
        "part": [
            number
            for bar in bars
            if not bar.whole
            for number in (places[bar.record.job], bar.first, round(bar.low * 1000), round(bar.high * 1000))
        ],
    }


def _columns(
    run: ReportRun, span: TimeSpan, records: Sequence[SimulatedJob], unit_s: float
) -> dict[str, Any]:
    users, projects, states = _ranked(run, "user"), _ranked(run, "project"), _Names()

    def ticks(seconds: Iterable[float]) -> list[int]:
        return [round(each / unit_s) for each in seconds]

    columns: dict[str, list[Any]] = {
        "job": _differences([run.number(record) for record in records]),
        "user": [users.number(record.user) for record in records],
        "project": [projects.number(record.project) for record in records],
        "size": [_whole_if_possible(run.size(record)) for record in records],
        "start": _differences(ticks((record.start_s or 0.0) - span.begin_s for record in records)),
        "wait": ticks(record.wait_s for record in records),
        "run": ticks(run.ran_s(record) for record in records),
        "limit": [None if record.limit_s is None else round(record.limit_s) for record in records],
        "state": [states.number(_state(record)) for record in records],
    }
    if any(record.attempts > 1 for record in records):
        columns["attempts"] = [record.attempts for record in records]
    return {
        "jobs": columns,
        "users": [*users.known],
        "projects": [*projects.known],
        "states": [*states.known],
    }


def _ranked(run: ReportRun, of: str) -> _Names:
    """Return a table of the names of all users or projects (`of` is "user" or "project"). The name with the
    most used GPU or processor time comes first.

    The order matters, because the script of the report has different colours only for the first names.
    """
    used: dict[str, float] = defaultdict(float)
    for record in run.started:
        used[getattr(record, of)] += run.held(record) * run.ran_s(record)
    names = _Names()
    for name in sorted(used, key=lambda name: (-used[name], name)):
        names.number(name)
    return names


def _state(record: SimulatedJob) -> str:
    word = record.state.value.lower()
    return f"{word}: {record.reason.value}" if record.reason.value else word


def _differences(values: Sequence[int]) -> list[int]:
    """Replace each value by its difference from the value before. Small numbers make the file shorter."""
    return [value - before for before, value in zip([0, *values], values, strict=False)]


def _whole_if_possible(size: float) -> float:
    return int(size) if size == int(size) else size
