"""Bars as columns of small numbers, for the script that draws them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from controller.sim.report.bars import Bar, bars_of, tracks_of
from controller.sim.report.run import Run, Span
from controller.sim.results import Life
from wire.text import plain

MOST = 120_000
"""Bars in one report: about 4 MB."""


@dataclass
class _Names:
    """Texts by number, each kept once."""

    known: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        """The number of a text."""
        return self.known.setdefault(plain(text, 80), len(self.known))


@dataclass(frozen=True)
class Gantt:
    """What the script is given, and what was left out of it."""

    packed: dict[str, Any]
    bars: int
    left_out: int
    left_out_part: float
    """Of the time that is held by all bars."""


def gantt_of(run: Run, span: Span, most: int) -> Gantt:
    """The chart of a run with at most so many bars: those that hold most GPU time."""
    bars = bars_of(run)
    areas = [bar.count * (bar.high - bar.low) * run.ran_s(bar.life) for bar in bars]
    kept = bars
    if len(bars) > most:
        largest = sorted(range(len(bars)), key=lambda place: -areas[place])[:most]
        kept = [bars[place] for place in sorted(largest)]
    whole = sum(areas)
    shown = sum(bar.count * (bar.high - bar.low) * run.ran_s(bar.life) for bar in kept)
    return Gantt(
        _packed(run, span, kept), len(kept), len(bars) - len(kept), 1 - shown / whole if whole else 0.0
    )


def _packed(run: Run, span: Span, bars: Sequence[Bar]) -> dict[str, Any]:
    lives = {bar.life.job: bar.life for bar in bars}
    places = {job: place for place, job in enumerate(lives)}
    # Whole seconds are exact enough where they are less than a pixel.
    unit_s = 1.0 if span.length_s > 20_000 else 0.01
    return {
        "label": plain(run.label, 80),
        "unit": run.unit,
        "unit_s": unit_s,
        "nodes": [
            [plain(node, 80), [[track.name, track.height] for track in tracks]]
            for node, tracks in groupby(tracks_of(run), key=lambda track: track.node)
        ],
        **_columns(run, span, [*lives.values()], unit_s),
        "whole": [
            number for bar in bars if bar.whole for number in (places[bar.life.job], bar.first, bar.count)
        ],
        "part": [
            number
            for bar in bars
            if not bar.whole
            for number in (places[bar.life.job], bar.first, round(bar.low * 1000), round(bar.high * 1000))
        ],
    }


def _columns(run: Run, span: Span, lives: Sequence[Life], unit_s: float) -> dict[str, Any]:
    users, projects, states = _ranked(run, "user"), _ranked(run, "project"), _Names()

    def ticks(seconds: Iterable[float]) -> list[int]:
        return [round(each / unit_s) for each in seconds]

    columns: dict[str, list[Any]] = {
        "job": _steps([run.number(life) for life in lives]),
        "user": [users.number(life.user) for life in lives],
        "project": [projects.number(life.project) for life in lives],
        "size": [_short(run.size(life)) for life in lives],
        "start": _steps(ticks((life.start_s or 0.0) - span.begin_s for life in lives)),
        "wait": ticks(life.wait_s for life in lives),
        "run": ticks(run.ran_s(life) for life in lives),
        "limit": [None if life.limit_s is None else round(life.limit_s) for life in lives],
        "state": [states.number(_state(life)) for life in lives],
    }
    if any(life.attempts > 1 for life in lives):
        columns["attempts"] = [life.attempts for life in lives]
    return {
        "jobs": columns,
        "users": [*users.known],
        "projects": [*projects.known],
        "states": [*states.known],
    }


def _ranked(run: Run, of: str) -> _Names:
    """Who held the most comes first: the first ones get colours of their own."""
    used: dict[str, float] = defaultdict(float)
    for life in run.started:
        used[getattr(life, of)] += run.held(life) * run.ran_s(life)
    names = _Names()
    for name in sorted(used, key=lambda name: (-used[name], name)):
        names.number(name)
    return names


def _state(life: Life) -> str:
    word = life.state.value.lower()
    return f"{word}: {life.reason.value}" if life.reason.value else word


def _steps(values: Sequence[int]) -> list[int]:
    """Each value as its distance from the one before: shorter, where they grow."""
    return [value - before for before, value in zip([0, *values], values, strict=False)]


def _short(size: float) -> float:
    return int(size) if size == int(size) else size
