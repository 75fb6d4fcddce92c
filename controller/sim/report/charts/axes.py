"""Axes of charts: scales, ticks and grid lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controller.sim.report.markup import Markup, el, joined
from controller.sim.report.run import DAY_S, TimeSpan
from wire.text import duration

HOUR_S = 3_600.0

TIME_STEPS = (
    *(1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1_800.0, HOUR_S, 3 * HOUR_S, 6 * HOUR_S, 12 * HOUR_S),
    *(DAY_S * days for days in (1, 2, 7, 14, 28, 91, 182, 365, 1_825)),
)

WAITS = (0.0, 10.0, 60.0, 600.0, HOUR_S, 6 * HOUR_S, DAY_S, 7 * DAY_S, 30 * DAY_S, 365 * DAY_S)

Tick = tuple[float, str]


@dataclass(frozen=True)
class Scale:
    """Maps values from `low` to `high` to coordinates from `begin` to `end` on an axis.

    The function `bend` is applied to `low`, to `high` and to each value before the mapping. For a linear axis
    `bend` returns the value unchanged, for a logarithmic axis its logarithm.
    """

    low: float
    high: float
    begin: float
    end: float
    bend: Callable[[float], float] = float

    def __call__(self, value: float) -> float:
        low, high = self.bend(self.low), self.bend(self.high)
        part = (self.bend(value) - low) / (high - low) if high > low else 0.0
        return self.begin + (self.end - self.begin) * part


def bend_waits(seconds: float) -> float:
    """Return a number that is 0 for the wait 0, and grows logarithmically with waits above about ten seconds.
    A Scale that shows waits has this function as its `bend`.
    """
    return math.log10(1 + seconds / 10)


def time_ticks(span: TimeSpan, most: int = 11) -> list[Tick]:
    """Return at most `most` ticks of a time axis, at round times since the beginning of the time span."""
    longest = TIME_STEPS[-1]
    steps = (*TIME_STEPS, longest * math.ceil((span.length_s / longest + 1) / most))
    step = next(step for step in steps if int(span.length_s / step) + 1 <= most)
    return [
        (span.begin_s + place * step, since(place * step)) for place in range(int(span.length_s / step) + 1)
    ]


def since(seconds: float) -> str:
    """Return a time as text, such as 2 d, 2 d 06:00, 06:00 or 00:05:30. `seconds` counts from the beginning
    of the report's time span.
    """
    days, rest = divmod(round(seconds), round(DAY_S))
    if days and not rest:
        return f"{days} d"
    hours, rest = divmod(rest, 3_600)
    minutes, left = divmod(rest, 60)
    clock = f"{hours:02}:{minutes:02}" + (f":{left:02}" if left else "")
    return f"{days} d {clock}" if days else clock


def moment_text(seconds: float, span: TimeSpan) -> str:
    """Return a time as text, rounded to minutes if the report's time span is longer than a day. `seconds`
    counts from the beginning of the time span.
    """
    return since(round(seconds / 60) * 60 if span.length_s > DAY_S else seconds)


def wait_ticks(most: float) -> list[Tick]:
    """Return the ticks of an axis that shows waits: at the times in WAITS, such as 1 minute and 1 hour, up to
    the longest wait `most` in seconds.
    """
    return [(wait, "0" if not wait else _round(wait)) for wait in WAITS if wait <= most]


def _round(seconds: float) -> str:
    text = duration(seconds)
    for zero in ("00s", "00m", "00h"):
        text = text.removesuffix(zero)
    return text


def level_ticks(most: float, count: int = 4) -> list[float]:
    """Return about `count` ticks at round numbers from 0 to at least `most`."""
    step = _nice(most / count) if most > 0 else 1.0
    return [step * place for place in range(math.ceil(most / step - 1e-9) + 1)]


def _nice(value: float) -> float:
    scale: float = 10.0 ** math.floor(math.log10(value))
    return next(step * scale for step in (1, 2, 2.5, 5, 10) if step * scale >= value * 0.999)


def decades(most: float) -> list[Tick]:
    """Return ticks at 1, 10, 100, 1k and so on, up to at least `most`. If `most` is at most 100, also return
    the ticks at 2, 5, 20 and 50 that fit between these.
    """
    powers = max(1, math.ceil(math.log10(max(most, 1.0)) - 1e-9))
    steps = (1, 2, 5) if powers <= 2 else (1,)
    values = [step * 10**power for power in range(powers) for step in steps] + [10**powers]
    return [(float(value), _thousands(value)) for value in values]


def _thousands(value: int) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value // size}{letter}"
    return str(value)


def ruled_x(ticks: Sequence[Tick], x: Scale, top: float, bottom: float) -> Markup:
    """Draw vertical grid lines with labels below the lines."""
    return joined(
        *(
            joined(
                el("line", class_="grid", x1=x(value), x2=x(value), y1=top, y2=bottom),
                el(
                    "text",
                    label,
                    class_="tick",
                    x=x(value),
                    y=bottom + 16.0,
                    text_anchor=_anchor(x(value), x),
                ),
            )
            for value, label in ticks
        )
    )


def ruled_y(ticks: Sequence[Tick], y: Scale, left: float, right: float) -> Markup:
    """Draw horizontal grid lines with labels to the left of the lines."""
    return joined(
        *(
            joined(
                el("line", class_="grid", x1=left, x2=right, y1=y(value), y2=y(value)),
                el("text", label, class_="tick", x=left - 8.0, y=y(value) + 4.0, text_anchor="end"),
            )
            for value, label in ticks
        )
    )


def _anchor(place: float, x: Scale) -> str:
    """Return the SVG attribute text-anchor for the label below a tick. `place` is the coordinate of the tick.
    Labels at the right edge are right-aligned, so that they stay inside the chart.
    """
    return "end" if place > x.end - 18 else "middle"
