"""Translates times to columns of the chart, and draws the line of times above the chart."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Final

from tui.look.styled_lines import fit

SPANS_S: Final = (1_800.0, 3_600.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0, 259_200.0, 604_800.0)
"""The lengths of time, in seconds, that the chart can show: half an hour to a week."""
STEPS_S: Final = (300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800)
"""The possible distances, in seconds, between two times on the line above the chart. The line uses the
smallest distance that is at least LEAST_GAP cells wide.
"""
LEAST_GAP: Final = 12
"""Two times on the line above the chart begin at least this number of cells apart."""


@dataclass(frozen=True)
class Timeline:
    """The time that the chart shows: `span_s` seconds from `begin`, drawn in `width` cells."""

    begin: float
    span_s: float
    width: int

    @property
    def end(self) -> float:
        return self.begin + self.span_s

    @property
    def cell_s(self) -> float:
        """Return the number of seconds of one cell."""
        return self.span_s / max(1, self.width)

    def column(self, at: float) -> int:
        """Return the column of a time. Times outside of the chart give columns outside of the chart."""
        return int((at - self.begin) // self.cell_s)

    def cells(self, begin: float, end: float) -> range:
        """Return the columns of the chart between two times. If a part of this time is in the chart, return
        at least one column.
        """
        if begin >= self.end or end <= self.begin:
            return range(0)
        first = max(0, self.column(begin))
        last = self.width if end >= self.end else max(first + 1, self.column(end))
        return range(first, last)

    def zoomed(self, by: int) -> Timeline:
        """Return a timeline with the next longer (`by` = 1) or the next shorter (`by` = -1) length in
        SPANS_S. The longest and the shortest length remain.
        """
        place = SPANS_S.index(self.span_s) if self.span_s in SPANS_S else 4
        return replace(self, span_s=SPANS_S[max(0, min(len(SPANS_S) - 1, place + by))])

    def line(self, now: float) -> str:
        """Return the line above the chart: times at equal distances, and "now" at its column."""
        step = next((step for step in STEPS_S if step / self.cell_s >= LEAST_GAP), STEPS_S[-1])
        form = "%H:%M" if step < 43_200 else "%d %b"
        zone_s = time.localtime(self.begin).tm_gmtoff
        at = ((self.begin + zone_s) // step + 1) * step - zone_s
        text = ""
        here = self.column(now)
        if 0 <= here < self.width:
            text = " " * here + f"now {time.strftime('%H:%M', time.localtime(now))}"
        while at < self.end:
            column = self.column(at)
            local = time.localtime(at)
            label = time.strftime(
                "%d %b" if form == "%H:%M" and not (local.tm_hour or local.tm_min) else form, local
            )
            if (column >= len(text) + 2 or not text) and column + len(label) <= self.width:
                text = fit(text, column) + label
            at += step
        return text[: self.width].ljust(self.width)
