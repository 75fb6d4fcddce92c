"""Draws series of numbers: area graphs of Braille characters, and sparklines that are one line high."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final, TypeVar

from tui.look.styled_lines import Piece, level

Values = Sequence[float | None]
"""Values at times with equal distances, oldest first. A value is None if there is no sample for its time."""

Sample = TypeVar("Sample")

HEATS: Final = 16
"""The number of styles `heat-0` to `heat-15` of each theme, from no load to full load."""

BRAILLE: Final = 0x2800
_LEFT: Final = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT: Final = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
"""_LEFT and _RIGHT: the bits of a Braille character with 0 to 4 dots in its left and in its right column,
counted from the bottom.
"""

_GAP_STEPS: Final = 1.5
"""A graph repeats the last sample in places without a sample. A place remains empty if the last sample is
older than _GAP_STEPS times `step_s` (see `resample`).
"""


def heat(percent: float) -> str:
    """Return the style name for a load in percent, such as heat-8 for 50 %."""
    return f"heat-{max(0, min(HEATS - 1, int(percent / 100 * HEATS)))}"


def resample(
    samples: Sequence[Sample],
    at: Callable[[Sample], float],
    value: Callable[[Sample], float | None],
    begin: float,
    end: float,
    step_s: float,
    count: int,
) -> list[float | None]:
    """Return `count` values at equal distances between the times `begin` and `end`.

    1. Divide the time into `count` places. The value of a place is the mean of its samples.
    2. A place without a sample gets the value of the last sample before the place, if this sample is not
       older than _GAP_STEPS times `step_s`, the usual time between two samples, in seconds.
    3. All other places get None, so that the graph shows a gap.

    Example: there is a sample for each second, and two places for each second. Then every other place repeats
    the value of the place before it.
    """
    width_s = (end - begin) / count
    values: list[float | None] = []
    following = 0
    carried: float | None = None
    carried_at = -math.inf
    for place in range(count):
        starts, ends = begin + place * width_s, begin + (place + 1) * width_s
        found: list[float] = []
        while following < len(samples) and at(samples[following]) < ends:
            carried, carried_at = value(samples[following]), at(samples[following])
            if carried is not None and carried_at >= starts:
                found.append(carried)
            following += 1
        if found:
            values.append(sum(found) / len(found))
        else:
            values.append(carried if starts - carried_at <= _GAP_STEPS * step_s else None)
    return values


def area_graph(
    over: Values, under: Values, height: int, most: float, styles: tuple[str, str]
) -> list[list[Piece]]:
    """Return the lines of an area graph, `height` lines high, of two series: `under` is never higher than
    `over`. Characters up to the value of `under` have the first style, and characters above this value the
    second style. `most` is the value at the top edge.

    1. Each value is rounded to dots: 4 dots for each line. A value above 0 has at least one dot.
    2. A character of line y has the dots of two neighbouring values between 4 * y and 4 * (y + 1).
    3. Neighbouring characters of one style become one piece of text.
    """
    top = [0 if not value else max(1, _dots(value, most, height)) for value in over]
    low = [0 if not value else max(1, _dots(value, most, height)) for value in under]
    top += [0] * (len(top) % 2)
    low += [0] * (len(low) % 2)
    lines: list[list[Piece]] = []
    for line in range(height - 1, -1, -1):
        characters: list[Piece] = []
        for left in range(0, len(top), 2):
            code = _LEFT[_part(top[left], line)] | _RIGHT[_part(top[left + 1], line)]
            reached = max(low[left : left + 2]) > line * 4
            characters.append((chr(BRAILLE | code) if code else " ", styles[0] if reached else styles[1]))
        lines.append(
            [
                ("".join(text for text, _ in same), name)
                for name, same in groupby(characters, key=lambda piece: piece[1])
            ]
        )
    return lines


def sparkline(values: Values, most: float) -> str:
    """Return one symbol for each value. The height of the symbol shows the value; `most` is the full height.
    A value of None gives a space.
    """
    scale = 100 / most if most > 0 else 0
    return "".join(" " if value is None else level(value * scale) for value in values)


def round_up(value: float) -> float:
    """Return the least number that is not below `value` and is 1, 2, 4, 5 or 8 times a power of ten. This is
    the top of a scale.
    """
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in (1, 2, 4, 5, 8) if value <= step * power * 1.0000001), 10 * power)


def _dots(value: float, most: float, height: int) -> int:
    return min(4 * height, round(value / most * 4 * height)) if most > 0 else 0


def _part(dots: int, line: int) -> int:
    return max(0, min(4, dots - 4 * line))
