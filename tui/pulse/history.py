"""Keeps the samples of the cluster's figures that the controller has sent, for graphs of the view Pulse."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Final

from tui.look.graphs import Values, resample
from wire.api.service.cluster import PulseSample

SECONDS_KEPT, MINUTES_KEPT = 600, 1_440
MINUTE_S: Final = 60.0
RANGES_S: Final = (600.0, 3_600.0, 86_400.0)
"""The lengths of time, in seconds, that the graphs can show."""


class PulseHistory:
    """Keeps two lists of samples: one sample for each second of the last 10 minutes, and one for each minute
    of the last day.

    Samples of earlier connections are kept. A restarted controller has no old samples, so the restart is a
    gap in the graphs, and the older samples stay visible. Memory: at most SECONDS_KEPT + MINUTES_KEPT
    samples.
    """

    def __init__(self) -> None:
        self.seconds: list[PulseSample] = []
        self.minutes: list[PulseSample] = []

    def put(self, seconds: Iterable[PulseSample], minutes: Iterable[PulseSample] = ()) -> None:
        """Add samples. If the controller has not sent the sample of the last minute, use a sample from
        `seconds` for this minute.
        """
        self.seconds = _merged(self.seconds, seconds, 0.5, SECONDS_KEPT)
        last = self.minutes[-1].at if self.minutes else 0.0
        fresh = [*minutes, *(each for each in self.seconds if each.at - last >= MINUTE_S)]
        self.minutes = _merged(self.minutes, fresh, MINUTE_S / 2, MINUTES_KEPT)

    @property
    def latest(self) -> PulseSample | None:
        """Return the newest sample; None if there is none."""
        return self.seconds[-1] if self.seconds else self.minutes[-1] if self.minutes else None

    def values(
        self, value: Callable[[PulseSample], float | None], now: float, range_s: float, count: int
    ) -> Values:
        """Return `count` values at equal distances for the last `range_s` seconds before `now`."""
        fine = range_s <= RANGES_S[0]
        samples, step_s = (self.seconds, 1.0) if fine else (self.minutes, MINUTE_S)
        return resample(samples, lambda each: each.at, value, now - range_s, now, step_s, count)

    def before(self, seconds: float) -> PulseSample | None:
        """Return the sample of the minute that lies `seconds` before the newest sample; None if no sample was
        kept for this time.
        """
        latest = self.latest
        if latest is None:
            return None
        place = bisect_right(self.minutes, latest.at - seconds, key=lambda each: each.at)
        found = self.minutes[place - 1] if place else None
        return found if found is not None and latest.at - seconds - found.at < 2 * MINUTE_S else None


def _merged(
    kept: list[PulseSample], more: Iterable[PulseSample], apart_s: float, most: int
) -> list[PulseSample]:
    """Return the newest `most` samples of both lists, oldest first. Of samples that are less than `apart_s`
    seconds apart, only the first one is kept.
    """
    more = list(more)
    if not more:
        return kept
    if kept and min(each.at for each in more) - kept[-1].at >= apart_s and len(more) == 1:
        return [*kept[-most + 1 :], *more]
    merged: list[PulseSample] = []
    for sample in sorted([*kept, *more], key=lambda each: each.at):
        if not merged or sample.at - merged[-1].at >= apart_s:
            merged.append(sample)
    return merged[-most:]
